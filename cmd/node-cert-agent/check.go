// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/node-cert-agent/node-cert-agent/agent/apiserver"
	"github.com/node-cert-agent/node-cert-agent/agent/check"
	"github.com/node-cert-agent/node-cert-agent/agent/check/collect"
	"github.com/node-cert-agent/node-cert-agent/agent/config"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/cmd/process"
)

func checkCommand(f *flags) *cobra.Command {
	var output format
	var kubeconfig string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Say whether this host and its cluster are fit for the agent",
		Long: `check looks at the configuration, the files and their directories, the writer, systemd, the
allowlist, the identity, the API server and the clock, and prints a line for each finding: ok, warn or
fail, what was found, and what to do about it. It changes nothing, and may run at any time beside the
service. As root it sees most. It exits with 0 if nothing fails, with 1 if something does, and with 2 if
the configuration is invalid.`,
		RunE: f.configured(func(c *cobra.Command, s config.Settings) error {
			ctx, cancel := context.WithTimeout(c.Context(), timeout)
			defer cancel()
			facts, err := collect.Facts(ctx, f.collectOptions(s, kubeconfig, c.ErrOrStderr()))
			if err != nil {
				return err
			}
			facts.Pairs = f.pairFacts()
			return printFindings(c.OutOrStdout(), output, check.Judge(facts))
		}),
	}
	output.flag(cmd)
	kubeconfigFlag(cmd, &kubeconfig,
		"take identity and address of the API server from a `FILE`, as the service does if it was given one")
	cmd.Flags().DurationVar(&timeout, "timeout", 30*time.Second, "how long to wait for answers in all")
	return cmd
}

// printFindings prints them; the error has a code if one of them is a failure.
func printFindings(w io.Writer, output format, findings []check.Finding) (err error) {
	failed := false
	for _, f := range findings {
		failed = failed || f.Level == check.Fail
	}
	if output == asJSON {
		err = printJSON(w, map[string]any{"findings": findings})
	} else {
		for _, f := range findings {
			line := fmt.Sprintf("%-4s  %s: %s", f.Level, f.What, f.Fact)
			if f.Fix != "" {
				line += "\n      fix: " + f.Fix
			}
			if _, err = fmt.Fprintln(w, line); err != nil {
				break
			}
		}
	}
	if err == nil && failed {
		err = process.Exit{Code: process.Failed}
	}
	return err
}

// collectOptions says how the facts about this host are come by.
func (f *flags) collectOptions(s config.Settings, kubeconfig string, stderr io.Writer) collect.Options {
	return collect.Options{Config: f.configOptions(), Settings: s, Foreign: kubeconfig != "", User: serviceUser,
		Own: []string{runtimeDir, bootstrapDir}, Built: buildTime(), Become: f.becomeServiceUser,
		Dial: func() (collect.Access, error) { return f.access(s, kubeconfig, stderr) }}
}

// access is whom this process may ask, as whoever it is now.
func (f *flags) access(s config.Settings, kubeconfig string, stderr io.Writer) (collect.Access, error) {
	d, err := newDeps(f, stderr)
	if err != nil {
		return collect.Access{}, err
	}
	return collect.Access{Writer: d.privileged(s), Systemd: d.systemd, Close: d.close,
		Status:   func() (report.Status, error) { return currentStatus(d.tree) },
		Identity: func(node string) (*apiserver.Conn, error) { return d.apiConn(kubeconfig, node) }}, nil
}
