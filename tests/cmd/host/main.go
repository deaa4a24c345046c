// SPDX-License-Identifier: Apache-2.0

// Command host makes the root file systems that the test hosts boot from and prints where they are. It
// does nothing when they are there already. It exits with 1 and one line that says what the machine
// lacks when it cannot.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	for _, r := range []host.Release{host.Same, host.Newer} {
		root, err := host.Root(ctx, r)
		if err != nil {
			fmt.Fprintln(os.Stderr, "host:", err)
			os.Exit(1)
		}
		fmt.Println(root)
	}
}
