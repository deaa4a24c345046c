// SPDX-License-Identifier: Apache-2.0

//go:build real

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/cluster"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane/controllerconfig"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// patience bounds every wait. It is no measure of speed: what takes a second takes that on an idle
// machine, and CI is not one. Some things come once a minute and a tenth: the retry of a reconcile that fails, the
// answer to a conflict.
const patience = 2 * time.Minute

// node is a cluster under test. Its methods end the test when something does not come about.
type node struct {
	*cluster.Cluster
	t   *testing.T
	ctx context.Context
}

func start(t *testing.T, o cluster.Options) *node {
	t.Helper()
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	t.Cleanup(cancel)
	c, err := cluster.Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	n := &node{c, t, ctx}
	t.Cleanup(func() {
		if t.Failed() {
			journal, _ := c.Host.Journal(context.WithoutCancel(ctx), "-o", "short-precise", "--no-pager", "-n", "150")
			t.Logf("the host's journal ends with\n%s", journal)
		}
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// started is start with the agent running and the ControllerConfig created with one kubelet CA.
func started(t *testing.T, o cluster.Options) (n *node, first []byte) {
	t.Helper()
	n = start(t, o)
	first = testpki.NewCA("first")
	n.create(controllerconfig.Spec{KubeAPIServerServingCAData: first, RootCAData: first})
	n.must(n.StartAgent(n.ctx))
	n.awaitFile(cluster.KubeletCA, first)
	n.awaitUnit(cluster.Reader, "up to date")
	return n, first
}

func (n *node) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) create(s controllerconfig.Spec) {
	n.t.Helper()
	_, err := n.Store.Create(n.ctx, s)
	n.must(err)
}

// patch changes the ControllerConfig and returns its new version.
func (n *node) patch(spec any) string {
	n.t.Helper()
	v, err := n.Store.Patch(n.ctx, spec)
	n.must(err)
	return v
}

func kubeletCA(pem []byte) controllerconfig.Spec {
	return controllerconfig.Spec{KubeAPIServerServingCAData: pem}
}

// run runs a command on the host as root.
func (n *node) run(command ...string) string {
	n.t.Helper()
	out, err := n.Host.Run(n.ctx, command...)
	n.must(err)
	return strings.TrimSpace(out)
}

// await polls, because the outside offers no event for most of what is waited for.
func (n *node) await(what string, done func() bool) {
	n.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !done() {
		select {
		case <-tick.C:
		case <-deadline:
			n.t.Fatalf("%s did not come about; status is\n%s", what, n.statusText())
		}
	}
}

func (n *node) file(path string) []byte {
	b, _ := os.ReadFile(n.Host.Path(path))
	return b
}

func (n *node) awaitFile(path string, want []byte) {
	n.t.Helper()
	n.await(path+" with the wanted content", func() bool { return bytes.Equal(n.file(path), want) })
}

func (n *node) wantFile(path string, want []byte) {
	n.t.Helper()
	if got := n.file(path); !bytes.Equal(got, want) {
		n.t.Errorf("%s holds %d bytes %.40q, want %d", path, len(got), got, len(want))
	}
}

func (n *node) status() (s report.Status) {
	_ = json.Unmarshal(n.file("/run/node-cert-agent/status.json"), &s)
	return s
}

func (n *node) statusText() string { return string(n.file("/run/node-cert-agent/status.json")) }

// awaitMetric waits for the metrics, which are written after the status.
func (n *node) awaitMetric(text string) {
	n.t.Helper()
	n.await("the metric "+text, func() bool {
		return strings.Contains(string(n.file("/run/node-cert-agent/metrics.prom")), text)
	})
}

// awaitVersion waits until the agent has dealt with this version of the ControllerConfig.
func (n *node) awaitVersion(v string) (s report.Status) {
	n.t.Helper()
	n.await("version "+v, func() bool { s = n.status(); return s.ControllerConfig.ResourceVersion == v && s.Error == "" })
	return s
}

func (n *node) awaitState(state report.SourceState) {
	n.t.Helper()
	n.await("state "+string(state), func() bool { return n.status().State == state })
}

func (n *node) awaitUnit(name string, state report.UnitState) {
	n.t.Helper()
	n.await(name+" "+string(state), func() bool {
		for _, u := range n.status().Units {
			if u.Name == name {
				return u.State == state
			}
		}
		return false
	})
}

// journal is what journalctl(1) prints, with all that was sent until now: journald writes in its own time.
func (n *node) journal(args ...string) string {
	n.t.Helper()
	n.run("journalctl", "--sync")
	out, err := n.Host.Journal(n.ctx, args...)
	n.must(err)
	return out
}

// records counts the audit records of a kind whose fields match.
func (n *node) records(k audit.Kind, match ...string) int {
	n.t.Helper()
	return strings.Count(n.journal(append([]string{"-o", "json", "MESSAGE_ID=" + string(k.ID)}, match...)...), "\n")
}

func (n *node) awaitRecord(k audit.Kind, match ...string) host.Entry {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.ctx, patience)
	defer cancel()
	e, err := n.Host.WaitJournal(ctx, append([]string{"MESSAGE_ID=" + string(k.ID)}, match...), nil)
	n.must(err)
	return e
}

func (n *node) wantLoads(event string, want int) {
	n.t.Helper()
	if got := n.Loads(n.ctx, event); got != want {
		n.t.Errorf("%s was loaded %d times by %s, want %d", cluster.Reader, got, event, want)
	}
}

// stamp identifies a file's inode and its last change: equal stamps mean that nobody wrote it.
func (n *node) stamp(path string) string { return n.run("stat", "-c", "%i %Z %z", path) }

func certsD(name string) string { return filepath.Join("/etc/docker/certs.d", name, "ca.crt") }
