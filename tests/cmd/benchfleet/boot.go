// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/cluster"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane/controllerconfig"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/figures"
)

// tokenID is that of the one token that all nodes boot with, as a group of machines of a cloud does.
const tokenID = "fleet0"

// boot starts all agents at once, each with a token and nothing else, or with an identity that we signed, and waits
// until each has written its first files. Their Nodes exist.
func boot(ctx context.Context, e *env) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	if err := e.options.mayOpen(e.n, limit.Cur); err != nil {
		return err
	}
	if err := e.prepare(ctx); err != nil {
		return err
	}
	before, err := e.heaps(ctx)
	if err != nil {
		return err
	}
	logged, err := e.asked.Length()
	if err != nil {
		return err
	}
	if err := e.watchStates(ctx); err != nil {
		return err
	}
	e.files.round(e.n)
	e.reports.round(e.n)
	began := time.Now()
	if err := e.order(orderBoot); err != nil {
		return err
	}
	at, err := e.files.wait(ctx, "first files", e.options.limit)
	if err != nil {
		return err
	}
	from := "token"
	if e.options.signed {
		from = "identity of ours, not of the approver's,"
	}
	e.table.Note("boot: "+from+" -> first files, all at once", "%v", figures.Since(began, at))
	reported, err := e.reports.wait(ctx, "first reports", e.options.limit)
	if err != nil {
		return err
	}
	e.table.Note("boot: "+from+" -> state object written", "%v", figures.Since(began, reported))
	requests, err := e.asked.Since(logged)
	if err != nil {
		return err
	}
	e.table.Note("boot: requests as a node, each", "%.1f", float64(requests.Total())/float64(e.n))
	if err := e.footprint(ctx, before); err != nil {
		return err
	}
	return e.check()
}

// footprint is the memory of the agents.
func (e *env) footprint(ctx context.Context, before int64) error {
	if err := e.order(orderHeap); err != nil {
		return err
	}
	after, err := e.heaps(ctx)
	if err != nil {
		return err
	}
	var sum float64
	for _, p := range e.processes {
		resident, _ := memory(p.pid)
		sum += resident
	}
	e.table.Note("an agent among others in a process, live heap", "%d KiB", (after-before)/int64(e.n)/1024)
	e.table.Note("processes of agents", "%d, resident %.0f MiB together", len(e.processes), sum)
	return nil
}

// prepare makes the Nodes, what each node boots with, and the processes, which make the trees.
func (e *env) prepare(ctx context.Context) error {
	names := make([]string, e.n)
	for i := range names {
		names[i] = nodeName(i)
	}
	if err := e.makeNodes(ctx, names...); err != nil {
		return err
	}
	var kubeconfig []byte
	if e.options.signed {
		if err := each(e.n, func(i int) error {
			return giveIdentity(e.plane.CA(), e.plane.URL(), names[i], e.root(names[i]))
		}); err != nil {
			return err
		}
	} else {
		if err := cluster.MakeToken(ctx, e.plane, tokenID); err != nil {
			return err
		}
		kubeconfig = cluster.TokenKubeconfig(e.plane, e.plane.URL(), tokenID)
	}
	for first := 0; first < e.n; first += e.options.share {
		s := share{First: first, Count: min(e.options.share, e.n-first), Dir: e.dir, Kubeconfig: kubeconfig}
		if err := e.launch(s); err != nil {
			return err
		}
	}
	return nil
}

// root is where the tree of a node is.
func (e *env) root(node string) string { return filepath.Join(e.dir, node) }

// check compares all files of all nodes with what they are to be. An agent writes the file that changed first.
func (e *env) check() error {
	want := controllerconfig.Files(e.content.Spec)
	return each(e.n, func(i int) error {
		for place, data := range want {
			got, err := os.ReadFile(filepath.Join(e.root(nodeName(i)), place))
			if err != nil {
				return err
			}
			if !bytes.Equal(got, data) {
				return fmt.Errorf("%s of %s is not what was published", place, nodeName(i))
			}
		}
		return nil
	})
}
