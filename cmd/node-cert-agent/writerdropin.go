// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/node-cert-agent/node-cert-agent/agent/config"
	"github.com/node-cert-agent/node-cert-agent/agent/disk"
	"github.com/node-cert-agent/node-cert-agent/agent/writer"
)

func writerDropinCommand(f *flags) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "writer-dropin",
		Short: "Print the drop-in that opens the writer's sandbox for files at other paths",
		Long: `writer-dropin prints a drop-in for node-cert-agent-writer.service with the directories of this host's files
that the service as shipped may not write to. After a file got another directory, write it to
/etc/systemd/system/node-cert-agent-writer.service.d/50-files.conf, and have systemd read it:
systemctl daemon-reload && systemctl try-restart node-cert-agent-writer.service

It is not done for you: what opens a sandbox is for the administrator to see.`,
		RunE: f.configured(func(c *cobra.Command, s config.Settings) error {
			text := writer.Dropin(s.Policy.Files, func(file string) string { return resolve(f.root, file) })
			if file == "" {
				fmt.Fprint(c.OutOrStdout(), text)
				return nil
			}
			tree, err := disk.Open(f.root)
			if err != nil {
				return err
			}
			if err := tree.WriteFile(filepath.Clean(file), []byte(text), 0o644); err != nil {
				return fmt.Errorf("writing the drop-in: %w", err)
			}
			return nil
		}),
	}
	cmd.Flags().StringVar(&file, "write", "", "replace `FILE` instead of printing")
	return cmd
}

// resolve follows the links of a file on the host below root; one that is missing leads nowhere else.
func resolve(root, file string) string {
	real, err := filepath.EvalSymlinks(filepath.Join(root, file))
	if err != nil {
		return file
	}
	return path.Join("/", strings.TrimPrefix(real, path.Clean(root)))
}
