// SPDX-License-Identifier: Apache-2.0

// Command reloader has a unit reloaded again and again, and prints how long each time took, in
// nanoseconds: with -hand by systemctl(1), as a person would, else as the agent does it.
//
// A time runs from the request to the end of the job. The first is left out, since it pays for the
// connection to the bus, which the agent keeps.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/units"
)

func main() {
	hand := flag.Bool("hand", false, "by systemctl")
	n := flag.Int("n", 1, "`TIMES`")
	flag.Parse()
	unit := plan.Unit{Name: flag.Arg(0), Verb: plan.Reload}
	bus := units.New(units.SystemBus, "")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	reload := func() error { _, err := bus.Act(ctx, unit); return err }
	if *hand {
		reload = func() error { return exec.CommandContext(ctx, "systemctl", "reload", unit.Name).Run() }
	}
	for i := range *n + 1 {
		begin := time.Now()
		if err := reload(); err != nil {
			fmt.Fprintln(os.Stderr, "reloader:", err)
			os.Exit(1)
		}
		if i > 0 {
			fmt.Println(time.Since(begin).Nanoseconds())
		}
	}
}
