// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/node-cert-agent/node-cert-agent/agent/disk"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// opened are the directories that node-cert-agent-writer.service has writable as it is shipped.
var opened = []string{
	"/etc/kubernetes", "/etc/docker/certs.d", "/etc/pki/ca-trust/source/anchors", "/usr/local/share/ca-certificates",
	"/etc/node-cert-agent/bootstrap.d",
}

func writerDropinCommand(f *flags) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "writer-dropin",
		Short: "Print the drop-in that opens the writer's sandbox for rows at other paths",
		Long: `writer-dropin prints a drop-in for node-cert-agent-writer.service with the directories of this host's rows
that the service as shipped may not write to. After a row got another directory, write it to
/etc/systemd/system/node-cert-agent-writer.service.d/50-rows.conf, and have systemd read it:
systemctl daemon-reload && systemctl try-restart node-cert-agent-writer.service

It is not done for you: what opens a sandbox is for the administrator to see.`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := f.load()
			if err != nil {
				return err
			}
			text := writerDropin(s.Policy.Rows, func(file string) string { return resolve(f.root, file) })
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
		},
	}
	cmd.Flags().StringVar(&file, "write", "", "replace `FILE` instead of printing")
	return cmd
}

// writerDropin is systemd.exec(5) for the directories of rows that are not among opened. A file that may be
// a link needs the directory that the link leads to as well.
func writerDropin(rows []plan.Row, resolve func(file string) string) string {
	var more []string
	for _, r := range rows {
		more = append(more, r.Directory())
		if r.FollowLink {
			more = append(more, path.Dir(resolve(r.File)))
		}
	}
	slices.Sort(more)
	more = slices.DeleteFunc(slices.Compact(more), func(dir string) bool {
		return slices.ContainsFunc(opened, func(o string) bool { return dir == o || strings.HasPrefix(dir, o+"/") })
	})
	var b strings.Builder
	b.WriteString("# Made by \"node-cert-agent writer-dropin\" from the rows of this host's configuration.\n[Service]\n")
	for _, dir := range more {
		// One that is missing must not keep the writer from starting; nothing in it can be run.
		quoted := strings.ReplaceAll(strconv.Quote("-"+dir), "%", "%%")
		open := "ReadWritePaths"
		if strings.HasPrefix(dir, "/run/") || strings.HasPrefix(dir, "/var/run/") {
			open = "BindPaths" // of /run the unit shows nothing
		}
		fmt.Fprintf(&b, "%s=%s\nNoExecPaths=%s\n", open, quoted, quoted)
	}
	return b.String()
}

// resolve follows the links of a file on the host below root; one that is missing leads nowhere else.
func resolve(root, file string) string {
	real, err := filepath.EvalSymlinks(filepath.Join(root, file))
	if err != nil {
		return file
	}
	return path.Join("/", strings.TrimPrefix(real, path.Clean(root)))
}
