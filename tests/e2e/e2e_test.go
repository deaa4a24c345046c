// SPDX-License-Identifier: Apache-2.0

//go:build real

package e2e

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/cluster"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane/controllerconfig"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testnode"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// node is a cluster under test.
type node struct{ *testnode.Node }

func start(t *testing.T, o cluster.Options) *node {
	t.Helper()
	t.Parallel()
	return &node{testnode.Start(t, o)}
}

// started is start with the agent running and the ControllerConfig created with one kubelet CA.
func started(t *testing.T, o cluster.Options) (n *node, first []byte) {
	t.Helper()
	n = start(t, o)
	first = testpki.NewCA("first")
	n.create(controllerconfig.Spec{KubeAPIServerServingCAData: first, RootCAData: first})
	n.Must(n.StartAgent(n.Ctx))
	n.AwaitFile(cluster.KubeletCA, first)
	n.awaitUnit(cluster.Reader, "up to date")
	return n, first
}

func (n *node) create(s controllerconfig.Spec) {
	n.T.Helper()
	_, err := n.Store.Create(n.Ctx, s)
	n.Must(err)
}

// patch changes the ControllerConfig and returns its new version.
func (n *node) patch(spec any) string {
	n.T.Helper()
	v, err := n.Store.Patch(n.Ctx, spec)
	n.Must(err)
	return v
}

func kubeletCA(pem []byte) controllerconfig.Spec {
	return controllerconfig.Spec{KubeAPIServerServingCAData: pem}
}

func (n *node) wantFile(path string, want []byte) {
	n.T.Helper()
	if got := n.File(path); !bytes.Equal(got, want) {
		n.T.Errorf("%s holds %d bytes %.40q, want %d", path, len(got), got, len(want))
	}
}

func (n *node) statusText() string { return string(n.File(cluster.StatusFile)) }

// awaitMetric waits for the metrics, which are written after the status.
func (n *node) awaitMetric(text string) {
	n.T.Helper()
	n.Await("the metric "+text, func() bool {
		return strings.Contains(string(n.File("/run/node-cert-agent/metrics.prom")), text)
	})
}

// awaitVersion waits until the agent has dealt with this version of the ControllerConfig.
func (n *node) awaitVersion(v string) (s report.Status) {
	n.T.Helper()
	n.Await("version "+v, func() bool { s = n.Status(); return s.ControllerConfig.ResourceVersion == v && s.Error == "" })
	return s
}

func (n *node) awaitState(state report.SourceState) {
	n.T.Helper()
	n.Await("state "+string(state), func() bool { return n.Status().State == state })
}

func (n *node) awaitUnit(name string, state report.UnitState) {
	n.T.Helper()
	n.Await(name+" "+string(state), func() bool {
		for _, u := range n.Status().Units {
			if u.Name == name {
				return u.State == state
			}
		}
		return false
	})
}

func (n *node) wantLoads(event string, want int) {
	n.T.Helper()
	if got := n.Loads(n.Ctx, event); got != want {
		n.T.Errorf("%s was loaded %d times by %s, want %d", cluster.Reader, got, event, want)
	}
}

// stamp identifies a file's inode and its last change: equal stamps mean that nobody wrote it.
func (n *node) stamp(path string) string { return n.Run("stat", "-c", "%i %Z %z", path) }

func certsD(name string) string { return filepath.Join("/etc/docker/certs.d", name, "ca.crt") }
