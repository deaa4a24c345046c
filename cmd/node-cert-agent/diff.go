// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/node-cert-agent/node-cert-agent/agent/apiserver"
	"github.com/node-cert-agent/node-cert-agent/agent/config"
	"github.com/node-cert-agent/node-cert-agent/agent/files"
	"github.com/node-cert-agent/node-cert-agent/agent/source"
	"github.com/node-cert-agent/node-cert-agent/cmd/process"
)

func diffCommand(f *flags) *cobra.Command {
	var kubeconfig string
	var timeout time.Duration
	var input inputOptions
	cmd := &cobra.Command{
		Use:   "diff",
		Short: "Show what the agent would change on this host, and change nothing",
		Long: `diff reads the ControllerConfig once, looks at the managed files and prints the plan. With -f it shows what
apply of the same input would do, and needs no API server. It exits with 0 if there is nothing to do, with 3
if changes are pending, and with 4 if there is no identity.`,
		RunE: f.configured(func(c *cobra.Command, s config.Settings) error {
			if input.file != "" {
				o := applyOptions{input: input, dryRun: true, timeout: timeout}
				return f.apply(c.Context(), o, c.InOrStdin(), c.OutOrStdout(), c.ErrOrStderr())
			}
			var given *apiserver.Conn
			var err error
			if kubeconfig != "" {
				// Read before we give up being root: what it names may be root's alone.
				if given, err = apiserver.Snapshot(kubeconfig); err != nil {
					return process.Exit{Code: exitNoID, Cause: err}
				}
			}
			if err := f.becomeServiceUser(); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(c.Context(), timeout)
			defer cancel()
			return diff(ctx, f, s, given, c.OutOrStdout(), c.ErrOrStderr())
		}),
	}
	input.flags(cmd)
	kubeconfigFlag(cmd, &kubeconfig, "take identity and address of the API server from a `FILE`, not from the service")
	cmd.Flags().DurationVar(&timeout, "timeout", 30*time.Second, "how long to wait for the ControllerConfig")
	return cmd
}

// diff prints the plan. given speaks to the API server; if it is nil, the service's own identity does.
func diff(ctx context.Context, f *flags, s config.Settings, given *apiserver.Conn, stdout, stderr io.Writer) error {
	d, err := newDeps(f, stderr)
	if err != nil {
		return err
	}
	defer d.close()
	if given == nil {
		if given, err = d.storedIdentity(d.node(s)); err != nil {
			return process.Exit{Code: exitNoID, Cause: err}
		}
	}
	desired, err := source.New(s, d.log).Once(ctx, given)
	if err != nil {
		return err
	}
	st, _, err := d.loadState()
	if err != nil {
		return err
	}
	p, err := files.Preview(ctx, d.privileged(s), desired, st.Memory, d.policy(s).Policy, moment())
	if err != nil {
		return err
	}
	fmt.Fprint(stdout, p)
	if !p.Empty() {
		return process.Exit{Code: exitPending}
	}
	return nil
}
