// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/node-cert-agent/node-cert-agent/agent/identity"
)

func resetCommand(f *flags) *cobra.Command {
	return &cobra.Command{
		Use:   "reset",
		Short: "Set the identity of this host aside",
		Long: `reset sets the agent's certificates and keys aside, so that the next start of the service asks for new
ones with a bootstrap credential. What is set aside is removed once another identity is proven. The managed
files are not touched. It works only while the service is stopped.`,
		RunE: func(c *cobra.Command, _ []string) error {
			dir, err := f.ownState()
			if err != nil {
				return err
			}
			release, err := dir.Lock()
			if err != nil {
				return err
			}
			defer release()
			aside, err := identity.Reset(dir)
			for _, name := range aside {
				fmt.Fprintln(c.OutOrStdout(), "set aside as", stateDir+"/"+name)
			}
			if err == nil && len(aside) == 0 {
				fmt.Fprintln(c.OutOrStdout(), "there was no identity")
			}
			return err
		},
	}
}
