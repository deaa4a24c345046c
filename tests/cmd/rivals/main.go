// SPDX-License-Identifier: Apache-2.0

// Command rivals writes managed files as the two daemons of OpenShift do that write them, too, so that
// the agent can be tested beside them without their images.
//
//	rivals machine-config-daemon SPEC TIMES   what one sync of the ControllerConfig does, so many times
//	rivals node-ca SOURCE EVERY               mirror SOURCE into certs.d again and again, until killed
//
// SPEC is the ControllerConfig's spec in JSON, SOURCE a folder with a file for each registry, as a ConfigMap is
// mounted. Each does exactly what the original does to the disk, its mistakes included, and nothing
// else. An operation that fails is what would degrade the node: it is printed, and the command ends
// with 1, node-ca when it is told to end.
//
// Sources: machine-config-operator pkg/daemon/certificate_writer.go and file_writers.go,
// cluster-image-registry-operator pkg/nodeca/nodeca.go and bindata/nodecadaemon.yaml.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane/controllerconfig"
)

const certsD = "/etc/docker/certs.d"

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "rivals:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 3 {
		return errors.New("want machine-config-daemon SPEC TIMES, or node-ca SOURCE EVERY")
	}
	switch args[0] {
	case "machine-config-daemon":
		times, err := strconv.Atoi(args[2])
		if err != nil {
			return err
		}
		return syncs(args[1], times)
	case "node-ca":
		every, err := time.ParseDuration(args[2])
		if err != nil {
			return err
		}
		return mirrors(args[1], every)
	}
	return fmt.Errorf("there is no %q", args[0])
}

// syncs is the machine config daemon during that many versions of the ControllerConfig, one after the other.
func syncs(file string, times int) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var spec controllerconfig.Spec
	if err := json.Unmarshal(b, &spec); err != nil {
		return err
	}
	for range times {
		if err := sync(spec); err != nil {
			return err
		}
	}
	return nil
}

// mirrors is the node-ca daemon. What the original logs and forgets is remembered until the end.
func mirrors(source string, every time.Duration) error {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM)
	tick := time.NewTicker(every)
	defer tick.Stop()
	var failed error
	for {
		if err := mirror(source); err != nil {
			fmt.Fprintln(os.Stderr, "rivals: node-ca:", err)
			failed = err
		}
		select {
		case <-tick.C:
		case <-end:
			return failed
		}
	}
}
