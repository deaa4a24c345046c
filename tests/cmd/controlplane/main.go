// SPDX-License-Identifier: Apache-2.0

// Command controlplane builds the servers of package controlplane and prints the folder that holds
// them. With -up DIR it also starts a control plane that keeps its state and logs in DIR, installs
// both kinds of controllerconfig and the rights of an agent, and takes it down on SIGINT or SIGTERM.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane"
)

func main() {
	up := flag.String("up", "", "start a control plane with its state in `DIR`, which must be empty or absent and is "+
		"removed at the end")
	keep := flag.Bool("keep", false, "leave DIR behind")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	if err := run(ctx, *up, *keep); err != nil {
		fmt.Fprintln(os.Stderr, "controlplane:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir string, keep bool) error {
	if dir == "" {
		binaries, err := controlplane.Build(ctx, os.Stderr)
		if err == nil {
			fmt.Println(binaries.Dir)
		}
		return err
	}
	start := time.Now()
	p, err := controlplane.Start(ctx, controlplane.Options{Dir: dir, Keep: keep, Progress: os.Stderr})
	if err != nil {
		return err
	}
	if err := serve(ctx, p, start); err != nil {
		_ = p.Stop() // the first error says more
		return err
	}
	return p.Stop()
}

func serve(ctx context.Context, p *controlplane.Plane, start time.Time) error {
	ready := time.Since(start)
	for _, install := range []func(context.Context) error{p.InstallOpenShiftCRD, p.InstallCRD, p.AllowAgents} {
		if err := install(ctx); err != nil {
			return err
		}
	}
	agent, err := p.Kubeconfig(p.URL(), "node-cert-agent:node:demo", "node-cert-agent:nodes")
	if err != nil {
		return err
	}
	fmt.Printf("%s ready in %v, set up in %v\nexport KUBECONFIG=%s\nan agent's:       %s\nlogs:             %s\nCtrl-C "+
		"takes it down\n",
		p.URL(), ready.Round(time.Millisecond), time.Since(start).Round(time.Millisecond),
		filepath.Join(p.Dir(), "admin.kubeconfig"), agent, filepath.Join(p.Dir(), "*.log"))
	<-ctx.Done()
	return nil
}
