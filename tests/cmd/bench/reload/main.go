// SPDX-License-Identifier: Apache-2.0

// Command reload has units reloaded one after the other, and prints how long each took, in nanoseconds: with
// -hand by systemctl(1), as a person would, else through the reloader, as the agent does it.
//
// A time runs from the request to the end of the job. The first is left out, since it pays for the
// start of the reloader and its connection to the bus.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/reloader"
	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
)

func main() {
	hand := flag.Bool("hand", false, "by systemctl")
	flag.Parse()
	client := reloader.Dial("/run/node-cert-agent-reloader.sock", "")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	reload := func(unit string) error {
		_, err := client.Act(ctx, unitplan.Unit{Name: unit, Verb: unitplan.Reload})
		return err
	}
	if *hand {
		reload = func(unit string) error { return exec.CommandContext(ctx, "systemctl", "reload", unit).Run() }
	}
	for i, unit := range flag.Args() {
		begin := time.Now()
		if err := reload(unit); err != nil {
			fmt.Fprintln(os.Stderr, "reload:", err)
			os.Exit(1)
		}
		if i > 0 {
			fmt.Println(time.Since(begin).Nanoseconds())
		}
	}
}
