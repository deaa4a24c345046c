// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/node-cert-agent/node-cert-agent/cmd/process"
	"github.com/node-cert-agent/node-cert-agent/renew/inspect"
	"github.com/node-cert-agent/node-cert-agent/renew/signer"
)

func signerCommand(f *flags) *cobra.Command {
	return &cobra.Command{
		Use:   "signer",
		Short: "Look at the certificates of a control plane (started by systemd)",
		Long: `signer is the process that sees the keys of a control plane: it has no network and no bus, and tells
node-cert-agent-renew.service over a local socket which certificates there are. It takes no path from
anybody: what it looks at is in the flags of the components that root's own files start. It ends when
nobody has asked for anything for a while.`,
		RunE: func(c *cobra.Command, _ []string) error {
			if f.plain() {
				return process.Misused(errors.New("--root: in plain mode there is no second process"))
			}
			ln, admitted, err := socketFor(renewUser)
			if err != nil {
				return err
			}
			defer func() { _ = ln.Close() }()
			return signer.Serve(c.Context(), ln, inspect.Host{Root: "/", Proc: "/proc"}, admitted, c.ErrOrStderr())
		},
	}
}
