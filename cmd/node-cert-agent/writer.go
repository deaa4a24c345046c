// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/node-cert-agent/node-cert-agent/agent/config"
	"github.com/node-cert-agent/node-cert-agent/agent/disk"
	"github.com/node-cert-agent/node-cert-agent/agent/writer"
)

func writerCommand(f *flags) *cobra.Command {
	return &cobra.Command{
		Use:   "writer",
		Short: "Publish files for the agent (the privileged half, started by systemd)",
		Long: `writer is the privileged half: it has no network and no bus, takes rows and bytes from the agent over a
local socket, and writes only the files that the root-owned configuration of this host names.`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if f.plain() {
				return usage(errors.New("--root: in plain mode there is no second process"))
			}
			tree, err := disk.Open("/")
			if err != nil {
				return err
			}
			rows := &rowCache{options: f.configOptions(), tree: tree}
			if _, err := rows.load(); err != nil {
				return usage(err)
			}
			uid, err := serviceUID()
			if err != nil {
				return err
			}
			return serveWriter(c.Context(), rows, uid, c.ErrOrStderr())
		},
	}
}

func serveWriter(ctx context.Context, rows *rowCache, uid uint32, stderr io.Writer) error {
	ln, err := inherited()
	if err != nil {
		return err
	}
	defer func() { _ = ln.Close() }()
	return writer.Serve(ctx, ln, rows.load, func(peer uint32) bool { return peer == 0 || peer == uid }, stderr)
}

// rowCache reads the configuration again when it changed; the writer has no inotify and no timer, so
// it looks when it is asked for something.
type rowCache struct {
	options config.Options
	tree    *disk.Tree
	seen    uint64
	local   *writer.Local
}

func (r *rowCache) load() (*writer.Local, error) {
	seen, err := r.options.Stamp()
	if err != nil {
		return nil, err
	}
	if r.local != nil && seen == r.seen {
		return r.local, nil
	}
	s, err := config.Load(r.options)
	if err != nil {
		return nil, err
	}
	r.seen, r.local = seen, writer.New(s.Policy.Rows, r.tree, validate).WithConsume(writer.Consume(s.Consume)).WithKubelet(s.KubeletIdentity)
	return r.local, nil
}
