// SPDX-License-Identifier: Apache-2.0

// Command node-cert-controller is the cluster side of node-cert-agent: it approves the certificate requests of nodes.
//
// This package is flags, wiring and exit codes: 0 stopped by a signal, 1 failed or no longer the leader, 2 usage.
// Whatever it decides is decided in the packages below cluster.
package main

import (
	"context"
	"io"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"github.com/node-cert-agent/node-cert-agent/cmd/process"
)

// version is set by the linker.
var version = "0.0.0-dev"

func main() {
	// A panic would end with 2, wrong usage, and systemd would not start it again.
	debug.SetTraceback("crash")
	// Nor may tokens be in a core dump: see disableCoreDumps of the agent.
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	process.Main(run)
}

// run is main without the process around it.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return process.Run(ctx, "node-cert-controller", root(), nil, args, stdout, stderr)
}
