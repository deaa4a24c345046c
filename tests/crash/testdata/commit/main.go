// SPDX-License-Identifier: Apache-2.0

// Command commit carries out one commit in the directory of its last argument, as the writer does
// and in its own process, so that a test can kill it at every system call. It replaces etc/ca.crt,
// edits etc/kubeconfig, makes certs.d/new:5000 with its file, and removes certs.d/gone with its file.
// With "sweep" before the directory it sweeps first, as the next writer would; with "large", each file
// has many pages.
//
// With "rotate" before the directory it replaces 25 files instead, as when every CA of a cluster
// changes at once: etc/0.crt to etc/3.crt and the files of certs.d/r0:5000 to certs.d/r20:5000.
//
// It exits with 1 and one line on stderr if that fails.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/node-cert-agent/node-cert-agent/agent/disk"
	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/writer"
)

func init() {
	// strace counts system calls by thread.
	runtime.LockOSThread()
}

func main() {
	last := len(os.Args) - 1
	if err := run(os.Args[last], os.Args[1:last]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(dir string, how []string) error {
	tree, err := disk.Open("/")
	if err != nil {
		return err
	}
	specs := []plan.FileSpec{
		{Field: plan.KubeAPIServerServingCAData, Path: filepath.Join(dir, "etc/ca.crt"), Mode: 0o644},
		{Field: plan.KubeconfigCAData, Path: filepath.Join(dir, "etc/kubeconfig")},
		{Field: plan.ImageRegistryBundleData, Path: filepath.Join(dir, "certs.d/{name}/ca.crt"), Mode: 0o644},
	}
	c := one(specs, 1)
	switch {
	case slices.Contains(how, "large"):
		c = one(specs, 1000)
	case slices.Contains(how, "rotate"):
		specs, c = rotation(dir, specs[2])
	}
	w := writer.New(specs, tree, func(plan.FileSpec, []byte) ([]pki.Cert, error) { return nil, nil })
	if slices.Contains(how, "sweep") {
		if _, err := w.Sweep(context.Background()); err != nil {
			return err
		}
	}
	return w.Commit(context.Background(), c)
}

// one is the commit that is killed; its files grow in the order of their writing.
func one(specs []plan.FileSpec, size int) plan.Commit {
	lines := func(line string, n int) []byte { return bytes.Repeat([]byte(line), n*size) }
	key := func(nth int, name string) plan.Key { return plan.Key{Field: specs[nth].Field, Name: name} }
	return plan.Commit{
		Writes: []plan.CommitWrite{
			{Key: key(0, ""), Data: lines("new\n", 2)},
			{Key: key(1, ""), Data: lines("new\n", 3)},
			{Key: key(2, "new:5000"), Data: lines("made\n", 4)},
		},
		Removals: []plan.CommitRemoval{{Key: key(2, "gone"), Digest: plan.DigestOf([]byte("ours\n"))}},
	}
}

// rotation is the commit of 25 files, and its table.
func rotation(dir string, registries plan.FileSpec) (specs []plan.FileSpec, c plan.Commit) {
	write := func(k plan.Key) {
		c.Writes = append(c.Writes, plan.CommitWrite{Key: k, Data: []byte("rotated\n")})
	}
	for i, id := range []plan.Field{plan.KubeAPIServerServingCAData, plan.CloudProviderCAData, plan.RootCAData,
		plan.AdditionalTrustBundle} {
		specs = append(specs, plan.FileSpec{Field: id, Path: filepath.Join(dir, fmt.Sprintf("etc/%d.crt", i)), Mode: 0o644})
		write(plan.Key{Field: id})
	}
	for i := range 21 {
		write(plan.Key{Field: registries.Field, Name: fmt.Sprintf("r%d:5000", i)})
	}
	return append(specs, registries), c
}
