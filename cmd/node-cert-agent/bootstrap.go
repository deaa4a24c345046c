// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/node-cert-agent/node-cert-agent/agent/config"
	"github.com/node-cert-agent/node-cert-agent/agent/disk"
	"github.com/node-cert-agent/node-cert-agent/agent/identity"
	"github.com/node-cert-agent/node-cert-agent/agent/printable"
	"github.com/node-cert-agent/node-cert-agent/cmd/process"
)

func bootstrapCommand(f *flags) *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "bootstrap",
		Short: "Get an identity now, and say how far it comes",
		Long: `bootstrap does once what the service does by itself: it asks for a certificate with a credential in
/etc/node-cert-agent/bootstrap.d, waits until somebody approves the request, proves the certificate and
keeps it. It prints each state and exits with 4 if there is no identity in time. It works only
while the service is stopped: both would write to its state directory.`,
		RunE: f.configured(func(c *cobra.Command, s config.Settings) error {
			return f.asService(c.ErrOrStderr(), func(d *deps, dir *disk.Directory) error {
				ctx, cancel := context.WithTimeout(c.Context(), timeout)
				defer cancel()
				return getIdentity(ctx, identity.New(d.identity(s, dir)), c.OutOrStdout())
			})
		}),
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Minute, "how long to wait")
	return cmd
}

// getIdentity prints each state until there is an identity, or ctx ends. Nothing of the manager is left
// running after it.
func getIdentity(ctx context.Context, m *identity.Manager, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { m.Run(ctx) })
	for last := ""; ; {
		select {
		case <-ctx.Done():
			return process.Exit{Code: exitNoID, Cause: fmt.Errorf("no identity in time: %s", last)}
		case st := <-m.Readings():
			if line := join(string(st.State), printable.Text(st.Reason)); line != last {
				fmt.Fprintln(out, line)
				last = line
			}
			if st.State == identity.Active {
				return nil
			}
		}
	}
}
