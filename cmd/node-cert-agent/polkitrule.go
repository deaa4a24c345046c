// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/node-cert-agent/node-cert-agent/agent/disk"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/units"
)

func polkitRuleCommand(f *flags) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "polkit-rule",
		Short: "Print the polkit rule that makes systemd enforce the allowlist",
		Long: `polkit-rule turns the no-reboot allowlist of this host's configuration into the rule by which polkit lets
the agent's user ask systemd for exactly these actions. node-cert-agent-polkit.service writes it before
the agent starts; restart that service after the allowlist changed.`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := f.load()
			if err != nil {
				return err
			}
			rule := units.PolkitRule(serviceUser, s.Policy.Units)
			if file == "" {
				fmt.Fprint(c.OutOrStdout(), rule)
				return nil
			}
			tree, err := disk.Open(f.root)
			if err != nil {
				return err
			}
			return writeRule(tree, filepath.Clean(file), []byte(rule))
		},
	}
	cmd.Flags().StringVar(&file, "write", "", "replace `FILE` instead of printing, if it differs")
	return cmd
}

// writeRule leaves a rule alone that is as it should be: polkitd reads all rules anew when one is written, at
// each start of the agent.
func writeRule(tree *disk.Tree, file string, rule []byte) error {
	const mode = 0o644
	for has := range tree.Observe([]disk.Look{{Target: disk.Target{Path: file}}}) {
		if has.Kind == plan.Regular && has.Digest == plan.DigestOf(rule) && has.Mode == mode {
			return nil
		}
	}
	if err := tree.WriteFile(file, rule, mode); err != nil {
		return fmt.Errorf("writing the polkit rule: %w", err)
	}
	return nil
}
