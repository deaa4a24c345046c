// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/cluster"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane/controllerconfig"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/figures"
)

// tokenID is that of the one token that all nodes boot with, as a group of machines of a cloud does.
const tokenID = "fleet0"

// boot starts all agents at once, each with a token and nothing else, and waits until each has written its first
// files. Their Nodes exist.
func boot(ctx context.Context, e *env) error {
	if err := mayOpen(e.n); err != nil {
		return err
	}
	if err := e.prepare(ctx); err != nil {
		return err
	}
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	logged, err := e.asked.Length()
	if err != nil {
		return err
	}
	running, cancel := context.WithCancel(ctx)
	if err := e.watchStates(running); err != nil {
		cancel()
		return err
	}
	e.files.round(e.n)
	e.reports.round(e.n)
	began := time.Now()
	ended := make(chan error, 1)
	var agents sync.WaitGroup
	for _, n := range e.fleet {
		agents.Go(func() {
			if err := n.run(running); err != nil {
				select {
				case ended <- err:
				default: // the first will do
				}
			}
		})
	}
	e.end = func() { cancel(); agents.Wait() }
	at, err := e.files.wait(ctx, "first files", e.options.limit)
	if err != nil {
		select {
		case err = <-ended:
		default:
		}
		return err
	}
	e.table.Note("boot: token -> first files, all at once", "%v", figures.Since(began, at))
	reported, err := e.reports.wait(ctx, "first reports", e.options.limit)
	if err != nil {
		return err
	}
	e.table.Note("boot: token -> state object written", "%v", figures.Since(began, reported))
	requests, err := e.asked.Since(logged)
	if err != nil {
		return err
	}
	e.table.Note("boot: requests as a node, each", "%.1f", float64(requests.Total())/float64(e.n))
	debug.FreeOSMemory()
	var after runtime.MemStats
	runtime.ReadMemStats(&after)
	e.table.Note("an agent in this process, live heap", "%d KiB",
		(int64(after.HeapAlloc)-int64(before.HeapAlloc))/int64(e.n)/1024)
	return e.check()
}

// prepare makes the Nodes, a token, and each node's tree.
func (e *env) prepare(ctx context.Context) error {
	names := make([]string, e.n)
	for i := range names {
		names[i] = fmt.Sprintf("node-%04d", i)
	}
	if err := e.makeNodes(ctx, names...); err != nil {
		return err
	}
	if err := cluster.MakeToken(ctx, e.plane, tokenID); err != nil {
		return err
	}
	kubeconfig := cluster.TokenKubeconfig(e.plane, e.plane.URL(), tokenID)
	e.fleet = make([]*node, e.n)
	var once sync.Once
	return each(e.n, func(i int) error {
		e.fleet[i] = &node{name: names[i], root: filepath.Join(e.dir, names[i]),
			wrote: func(c plan.Commit) { e.wrote(i, c) },
			warn:  func(err error) { once.Do(func() { fmt.Fprintln(os.Stderr, "  a state object:", err) }) }}
		return e.fleet[i].prepare(kubeconfig)
	})
}

// wrote notes a commit of an agent, if it has the bytes that the kubelet's bundle is to have.
func (e *env) wrote(i int, c plan.Commit) {
	want := e.want.Load()
	if slices.ContainsFunc(c.Writes, func(w plan.CommitWrite) bool {
		return w.Field == plan.KubeAPIServerServingCAData && bytes.Equal(w.Data, *want)
	}) {
		e.files.mark(i)
	}
}

// check compares all files of all nodes with what they are to be. An agent writes the file that changed first.
func (e *env) check() error {
	want := controllerconfig.Files(e.content.Spec)
	return each(e.n, func(i int) error {
		for place, data := range want {
			got, err := os.ReadFile(filepath.Join(e.fleet[i].root, place))
			if err != nil {
				return err
			}
			if !bytes.Equal(got, data) {
				return fmt.Errorf("%s of %s is not what was published", place, e.fleet[i].name)
			}
		}
		return nil
	})
}
