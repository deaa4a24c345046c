// SPDX-License-Identifier: Apache-2.0

// Package process is what our commands have in common as processes: signals end them, an error goes to standard
// error, and its kind is the exit code.
//
// It knows no command. That codes and messages stay as they are is promised by docs/compatibility.md.
package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// The exit codes of all commands, beside 0 for success.
const (
	Failed = 1
	Usage  = 2
)

// Exit is an error that carries an exit code; without a cause nothing is printed for it.
type Exit struct {
	Code  int
	Cause error
}

// Error implements error.
func (e Exit) Error() string {
	if e.Cause == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Cause.Error()
}

// Misused is an error of whoever wrote the command line or the configuration.
func Misused(err error) error { return Exit{Usage, err} }

// NoArgs refuses positional arguments.
func NoArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Misused(fmt.Errorf("unexpected argument %q", args[0]))
	}
	return nil
}

// Main calls run, ends its context at the first signal and the process at the second, and exits with its code.
func Main(run func(ctx context.Context, args []string, stdout, stderr io.Writer) int) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	context.AfterFunc(ctx, stop)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// Run executes a command line and gives its exit code. Before an error stands the name of the program; hints, which
// may be nil, gives more lines for one. A subcommand that does not say which arguments it takes, takes none.
func Run(ctx context.Context, name string, cmd *cobra.Command, hints func(error) []string, args []string,
	stdout, stderr io.Writer) int {
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	for _, sub := range cmd.Commands() {
		if sub.Args == nil {
			sub.Args = NoArgs
		}
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return Misused(err) })
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	e := Exit{Failed, err}
	errors.As(err, &e)
	if e.Cause == nil {
		return e.Code
	}
	fmt.Fprintf(stderr, "%s: error: %v\n", name, e.Cause)
	if hints != nil {
		for _, h := range hints(e.Cause) {
			fmt.Fprintf(stderr, "%s: hint: %s\n", name, h)
		}
	}
	return e.Code
}
