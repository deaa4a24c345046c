// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/node-cert-agent/node-cert-agent/agent/config"
	"github.com/node-cert-agent/node-cert-agent/agent/reloader"
	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
	"github.com/node-cert-agent/node-cert-agent/agent/units"
	"github.com/node-cert-agent/node-cert-agent/cmd/process"
)

func reloaderCommand(f *flags) *cobra.Command {
	return &cobra.Command{
		Use:   "reloader",
		Short: "Act on allowlisted units for the agent (started by systemd)",
		Long: `reloader is the process that may ask systemd for something: it takes the name of a unit from the agent
over a local socket, and has that unit reloaded or restarted if the root-owned configuration of this host
allows it. It has no network and writes no file. It ends when nobody has asked for anything for a while.`,
		RunE: func(c *cobra.Command, _ []string) error {
			if f.plain() {
				return process.Misused(errors.New("--root: in plain mode there is no systemd"))
			}
			ln, admitted, err := serviceSocket()
			if err != nil {
				return err
			}
			defer func() { _ = ln.Close() }()
			bus := units.New(units.SystemBus)
			defer func() { _ = bus.Close() }()
			allowlist := &configCache[[]unitplan.Unit]{options: f.configOptions(),
				from: func(s config.Settings) []unitplan.Unit { return s.Policy.Units }}
			return reloader.Serve(c.Context(), ln, bus, allowlist.load, admitted, c.ErrOrStderr())
		},
	}
}
