// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/node-cert-agent/node-cert-agent/agent/config"
	"github.com/node-cert-agent/node-cert-agent/agent/disk"
	"github.com/node-cert-agent/node-cert-agent/agent/writer"
	"github.com/node-cert-agent/node-cert-agent/cmd/process"
)

func writerCommand(f *flags) *cobra.Command {
	return &cobra.Command{
		Use:   "writer",
		Short: "Publish files for the agent (started by systemd)",
		Long: `writer is the process that changes files: it has no network and no bus, takes fields and bytes from the agent
over a local socket, and writes only the files that the root-owned configuration of this host names.`,
		RunE: func(c *cobra.Command, _ []string) error {
			if f.plain() {
				return process.Misused(errors.New("--root: in plain mode there is no second process"))
			}
			tree, err := disk.Open("/")
			if err != nil {
				return err
			}
			local := &configCache[*writer.Local]{options: f.configOptions(),
				from: func(s config.Settings) *writer.Local { return newWriter(s, tree) }}
			if _, err := local.load(); err != nil {
				return process.Misused(err)
			}
			ln, admitted, err := serviceSocket()
			if err != nil {
				return err
			}
			defer func() { _ = ln.Close() }()
			return writer.Serve(c.Context(), ln, local.load, admitted, c.ErrOrStderr())
		},
	}
}
