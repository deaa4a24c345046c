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
	"fmt"
	"io"
	"path/filepath"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/node-cert-agent/node-cert-agent/agent/log"
	"github.com/node-cert-agent/node-cert-agent/cmd/process"
)

// The exit codes beside those of package process.
const (
	exitPending = 3
	exitNoID    = 4
)

func main() {
	disableCoreDumps()
	tuneRuntime()
	// A panic would end the process with 2, which means wrong configuration and keeps systemd from
	// starting it again. With this it ends by SIGABRT, and leaves no core dump.
	debug.SetTraceback("crash")
	process.Main(run)
}

// run is main without the process around it.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return process.Run(ctx, "node-cert-agent", root(), hints, args, stdout, stderr)
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
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return process.Misused(fmt.Errorf("there is no command %q", args[0]))
			}
			return nil
		},
		PersistentPreRunE: func(*cobra.Command, []string) (err error) {
			f.root, err = filepath.Abs(f.root)
			return err
		},
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
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
		renewCommand(f), signerCommand(f), resetCommand(f), writerDropinCommand(f), versionCommand(), manCommand())
	return cmd
}
