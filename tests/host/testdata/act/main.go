// SPDX-License-Identifier: Apache-2.0

// Command act asks the reloader for one action as the agent does, as whoever runs it: act VERB UNIT. It
// prints the unit's invocation after it, and fails with the reason.
// Tests run it as the agent's user and as others.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/reloader"
	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	c := reloader.Dial("/run/node-cert-agent-reloader.sock", "")
	s, err := c.Act(ctx, unitplan.Unit{Verb: unitplan.Verb(os.Args[1]), Name: os.Args[2]})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(s.Invocation)
}
