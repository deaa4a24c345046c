// SPDX-License-Identifier: Apache-2.0

// Command commit carries out one commit in the directory of its last argument, as the writer does
// and in its own process, so that a test can kill it at every system call. With "sweep" before the
// directory it sweeps first, as the next writer would.
//
// It replaces etc/ca.crt, makes certs.d/new:5000 with its file, and removes certs.d/gone with its
// file. It exits with 1 and one line on stderr if that fails.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/node-cert-agent/node-cert-agent/agent/disk"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/writer"
)

func init() {
	// strace counts system calls by thread.
	runtime.LockOSThread()
}

func main() {
	if err := run(os.Args[len(os.Args)-1], len(os.Args) > 2); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(dir string, sweep bool) error {
	tree, err := disk.Open("/")
	if err != nil {
		return err
	}
	rows := []plan.Row{
		{ID: plan.KubeAPIServerServingCAData, File: filepath.Join(dir, "etc/ca.crt"), Mode: 0o644},
		{ID: plan.ImageRegistryBundleData, File: filepath.Join(dir, "certs.d/{name}/ca.crt"), Mode: 0o644},
	}
	w := writer.New(rows, tree, func(plan.Row, []byte) error { return nil })
	if sweep {
		if _, err := w.Sweep(context.Background()); err != nil {
			return err
		}
	}
	key := func(row int, name string) plan.Key { return plan.Key{Row: rows[row].ID, Name: name} }
	return w.Commit(context.Background(), plan.Commit{
		Writes: []plan.CommitWrite{
			{Key: key(0, ""), Data: []byte("new\nnew\n")},
			{Key: key(1, "new:5000"), Data: []byte("made\nmade\n")},
		},
		Removals: []plan.CommitRemoval{{Key: key(1, "gone"), Digest: plan.DigestOf([]byte("ours\n"))}},
	})
}
