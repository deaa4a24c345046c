// SPDX-License-Identifier: Apache-2.0

// Command node-cert-agent keeps the certificates of a Kubernetes node as the cluster's
// controllerconfig wants them.
//
// This package is flags, construction, hints and exit codes, a file a subcommand; whatever it decides is
// decided in the packages below agent. Exit codes are part of the host's contract: 0 done, 1 failed,
// 2 usage or configuration, 3 diff found changes pending, 4 no identity yet.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/node-cert-agent/node-cert-agent/agent/log"
)

const (
	exitFailed  = 1
	exitUsage   = 2
	exitPending = 3
	exitNoID    = 4
)

// exit is an error that carries an exit code; without a cause nothing is printed for it.
type exit struct {
	code  int
	cause error
}

func (e exit) Error() string {
	if e.cause == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.cause.Error()
}

func usage(err error) error { return exit{exitUsage, err} }

func main() {
	disableCoreDumps()
	tuneRuntime()
	// A panic would end the process with 2, which means wrong configuration and keeps systemd from
	// starting it again. With this it ends by SIGABRT, and leaves no core dump.
	debug.SetTraceback("crash")
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
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
	e := exit{exitFailed, err}
	errors.As(err, &e)
	if e.cause != nil {
		fmt.Fprintf(stderr, "node-cert-agent: error: %v\n", e.cause)
		for _, h := range hints(e.cause) {
			fmt.Fprintf(stderr, "node-cert-agent: hint: %s\n", h)
		}
	}
	return e.code
}

// flags are common to all subcommands.
type flags struct {
	root       string
	configDirs []string
	log        log.Settings
	// become replaces becomeServiceUser in tests.
	become func() error
}

func root() *cobra.Command { return commands(&flags{}) }

func commands(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "node-cert-agent",
		Short: "Keep the certificates of a Kubernetes node as the cluster's controllerconfig wants them",
		Long: `node-cert-agent watches one object of the cluster, the controllerconfig, writes the CA bundles that it
carries to fixed files of this host, atomically and only when they changed, and asks systemd to reload
the units that the administrator put on the no-reboot allowlist.

Configuration is read from node-cert-agent/config.d/*.yaml below /usr/lib, /run and /etc.
Exit codes: 0 ok, 1 failed, 2 usage or configuration, 3 changes pending (diff), 4 no identity yet.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage(fmt.Errorf("there is no command %q", args[0]))
			}
			return nil
		},
		PersistentPreRunE: func(*cobra.Command, []string) (err error) {
			f.root, err = filepath.Abs(f.root)
			return err
		},
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage(err) })
	cmd.PersistentFlags().StringVar(&f.root, "root", "/",
		"work on the tree below `DIR`: plain mode, without systemd, journal and a second process")
	cmd.PersistentFlags().StringArrayVar(&f.configDirs, "config-dir", nil,
		"read fragments from `DIR` instead of the three config.d directories (repeatable)")
	f.log.Format = log.Console
	cmd.PersistentFlags().Var(&f.log.Level, "log-level",
		"log diagnostics from `LEVEL` on: debug, info, warn or error; audit records have no level")
	cmd.PersistentFlags().Var(&f.log.Format, "log-format",
		"how they look where standard error is not the journal: `FORMAT` console or json")
	cmd.AddCommand(runCommand(f), writerCommand(f), reloaderCommand(f), bootstrapCommand(f), statusCommand(f),
		diffCommand(f), applyCommand(f), pauseCommand(f), resumeCommand(f), checkCommand(f), certsCommand(f),
		resetCommand(f), writerDropinCommand(f), versionCommand(), manCommand())
	return cmd
}

// noArgs refuses positional arguments with exit code 2.
func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage(fmt.Errorf("unexpected argument %q", args[0]))
	}
	return nil
}
