// SPDX-License-Identifier: Apache-2.0

// Command node-cert-controller is the cluster side of node-cert-agent: it approves the certificate requests of nodes.
//
// This package is flags, wiring and exit codes: 0 stopped by a signal, 1 failed or no longer the leader, 2 usage.
// Whatever it decides is decided in the packages below cluster.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"golang.org/x/sys/unix"
)

// version is set by the linker.
var version = "0.0.0-dev"

const (
	exitFailed = 1
	exitUsage  = 2
)

// usageError is a mistake of whoever wrote the command line.
type usageError struct{ error }

func main() {
	// A panic would end with 2, wrong usage, and systemd would not start it again.
	debug.SetTraceback("crash")
	// Nor may tokens be in a core dump: see disableCoreDumps of the agent.
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is main without the process around it.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cmd := root()
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintf(stderr, "node-cert-controller: error: %v\n", err)
	if _, ok := errors.AsType[usageError](err); ok {
		return exitUsage
	}
	return exitFailed
}
