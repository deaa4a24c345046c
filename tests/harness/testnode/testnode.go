// SPDX-License-Identifier: Apache-2.0

// Package testnode is a node under test: a host with the agent on it, most often with a control plane.
//
// Every method ends the test when something fails or does not come about. A failed test shows the end of
// the host's journal. What a suite alone asks of its nodes, it adds by embedding Node.
package testnode

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/cluster"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/must"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/wait"
)

// limit is how long the node of a test lives. A benchmark says itself how long it takes.
const limit = 10 * time.Minute

// Node is a node under test.
type Node struct {
	*cluster.Cluster
	T testing.TB
	// Ctx ends after the test and its cleanups, so that these can still use it. That of a test ends after ten minutes.
	Ctx context.Context
}

// Start starts a cluster, and stops it at the end of the test.
func Start(t *testing.T, o cluster.Options) *Node {
	t.Helper()
	n := newNode(t)
	c, err := cluster.Start(n.Ctx, o)
	n.Must(err)
	n.Cluster = c
	t.Cleanup(func() { n.end(c.Stop) })
	return n
}

// Join starts another node of the same control plane, and stops it at the end of the test.
func (n *Node) Join(o cluster.Options) *Node {
	n.T.Helper()
	c, err := n.Cluster.Join(n.Ctx, o)
	n.Must(err)
	other := &Node{Cluster: c, T: n.T, Ctx: n.Ctx}
	n.T.Cleanup(func() { other.end(c.Stop) })
	return other
}

// Boot boots a host without a control plane, and stops it at the end of the test.
func Boot(t testing.TB, o host.Options) *Node {
	t.Helper()
	n := newNode(t)
	h, err := host.Boot(n.Ctx, o)
	n.Must(err)
	n.Cluster = &cluster.Cluster{Host: h}
	t.Cleanup(func() { n.end(h.Stop) })
	return n
}

func newNode(t testing.TB) *Node {
	ctx, cancel := context.WithCancel(context.Background())
	if _, ok := t.(*testing.T); ok {
		ctx, cancel = context.WithTimeout(ctx, limit)
	}
	t.Cleanup(cancel)
	return &Node{T: t, Ctx: ctx}
}

func (n *Node) end(stop func() error) {
	if n.T.Failed() {
		journal, _ := n.Host.Journal(context.WithoutCancel(n.Ctx), "-o", "short-precise", "--no-pager", "-n", "150")
		n.T.Logf("the host's journal ends with\n%s", journal)
	}
	if err := stop(); err != nil {
		n.T.Error(err)
	}
}

// Must ends the test if there is an error.
func (n *Node) Must(err error) {
	n.T.Helper()
	must.Do(n.T, err)
}

// Run runs a command on the host as root, and returns what it printed without white space around it.
func (n *Node) Run(command ...string) string {
	n.T.Helper()
	out, err := n.Host.Run(n.Ctx, command...)
	n.Must(err)
	return strings.TrimSpace(out)
}

// Await polls until done, because the outside offers no event for most of what is waited for.
func (n *Node) Await(what string, done func() bool) {
	n.T.Helper()
	if err := wait.Until(n.Ctx, what, done); err != nil {
		n.T.Fatalf("%v; status is\n%s", err, n.File(cluster.StatusFile))
	}
}

// AwaitFile waits until the host's file has this content.
func (n *Node) AwaitFile(path string, want []byte) {
	n.T.Helper()
	n.Await(path+" with the wanted content", func() bool { return bytes.Equal(n.File(path), want) })
}

// AwaitApproved approves whatever is asked for until the identity is active and the agent follows with it.
func (n *Node) AwaitApproved() {
	n.T.Helper()
	n.Await("a new identity", func() bool {
		n.Must(n.Approve(n.Ctx))
		s := n.Status()
		return s.Identity != nil && s.Identity.State == "active" && s.State == "following"
	})
}

// Journal is what journalctl(1) prints, with all that was sent until now: journald writes in its own time.
func (n *Node) Journal(args ...string) string {
	n.T.Helper()
	n.Run("journalctl", "--sync")
	out, err := n.Host.Journal(n.Ctx, args...)
	n.Must(err)
	return out
}

// Records counts the audit records of a kind whose fields match.
func (n *Node) Records(k audit.Kind, match ...string) int {
	n.T.Helper()
	return strings.Count(n.Journal(append([]string{"-o", "json", "MESSAGE_ID=" + string(k.ID)}, match...)...), "\n")
}

// AwaitRecord waits for an audit record of a kind whose fields match; one that is there already will do.
func (n *Node) AwaitRecord(k audit.Kind, match ...string) host.Entry {
	n.T.Helper()
	return n.AwaitEntry(append([]string{"MESSAGE_ID=" + string(k.ID)}, match...)...)
}

// AwaitEntry waits for an entry of the journal whose fields match.
func (n *Node) AwaitEntry(match ...string) host.Entry {
	n.T.Helper()
	ctx, cancel := context.WithTimeout(n.Ctx, wait.Limit)
	defer cancel()
	e, err := n.Host.WaitJournal(ctx, match, nil)
	n.Must(err)
	return e
}
