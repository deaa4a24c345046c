// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/renameio/v2"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// kubeletCA is as large as the bundle of a real cluster.
var kubeletCA = bytes.Repeat([]byte("a line of a certificate's base64\n"), 9*1024/33)

// floor is the least that a careful writer does: renameio and one fsync of the directory.
func floor(b *testing.B, path string) {
	b.Helper()
	f, err := renameio.NewPendingFile(path, renameio.WithTempDir(filepath.Dir(path)),
		renameio.WithStaticPermissions(0o644))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Cleanup()
	if _, err := f.Write(kubeletCA); err != nil {
		b.Fatal(err)
	}
	if err := f.CloseAtomicallyReplace(); err != nil {
		b.Fatal(err)
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkCommitOne(b *testing.B) {
	b.Run("floor", func(b *testing.B) {
		path := filepath.Join(b.TempDir(), "ca.crt")
		for b.Loop() {
			floor(b, path)
		}
	})
	b.Run("commit", func(b *testing.B) {
		tree := open(b, "/")
		change := []Change{{target(b, filepath.Join(b.TempDir(), "ca.crt"), ""), kubeletCA}}
		timeCommit(b, tree, change)
	})
}

// timeCommit is Tree.Commit, and reports beside the whole the time until the last file is visible.
func timeCommit(b *testing.B, tree *Tree, changes []Change) {
	var visible time.Duration
	for b.Loop() {
		start := time.Now()
		ses := tree.newSession()
		all, err := ses.stage(changes)
		err = errors.Join(err, ses.carryOut(all, nil))
		visible += time.Since(start)
		if err = errors.Join(err, ses.sync()); err != nil {
			b.Fatal(err)
		}
		ses.close()
	}
	b.ReportMetric(float64(visible.Nanoseconds())/float64(b.N), "visible-ns/op")
}

// fleet is 25 targets, five of them in one directory, the others each in its own.
func fleet(b *testing.B) (targets []Target) {
	dir := b.TempDir()
	for i := range 5 {
		targets = append(targets, target(b, filepath.Join(dir, fmt.Sprintf("bundle-%d.crt", i)), ""))
	}
	for i := range 20 {
		targets = append(targets, target(b, filepath.Join(dir, "{name}/ca.crt"), fmt.Sprintf("registry%d.example:5000", i)))
	}
	return targets
}

func BenchmarkCommit25(b *testing.B) {
	b.Run("floor", func(b *testing.B) {
		targets := fleet(b)
		for _, t := range targets {
			if err := os.MkdirAll(filepath.Dir(t.Path), 0o755); err != nil {
				b.Fatal(err)
			}
		}
		for b.Loop() {
			for _, t := range targets {
				floor(b, t.Path)
			}
		}
	})
	b.Run("commit", func(b *testing.B) {
		tree := open(b, "/")
		var changes []Change
		for _, t := range fleet(b) {
			changes = append(changes, Change{t, kubeletCA})
		}
		timeCommit(b, tree, changes)
	})
}

func BenchmarkObserve25(b *testing.B) {
	tree := open(b, "/")
	var changes []Change
	var queries []Query
	for _, t := range fleet(b) {
		changes = append(changes, Change{t, kubeletCA})
		queries = append(queries, Query{t, plan.DigestOf(kubeletCA)})
	}
	if err := tree.Commit(changes, nil); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		for f := range tree.Observe(queries) {
			if f.Kind != plan.Regular || f.Data != nil {
				b.Fatal(f.Reason)
			}
		}
	}
}
