// SPDX-License-Identifier: Apache-2.0

//go:build real

package e2e

import (
	"os"
	"slices"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/agent/csr"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/cluster"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// TestTheRolloutPageIsAsWritten runs the blocks of docs/usage/rollout.md on a node and for its cluster.
func TestTheRolloutPageIsAsWritten(t *testing.T) {
	n := start(t, cluster.Options{Bootstrap: true, Shipped: true, Config: patientConfig})
	n.Must(n.Plane.Apply(n.Ctx, []byte("{apiVersion: v1, kind: Node, metadata: {name: node}}")))
	n.controller("--controllers=approver")
	first, second, third := testpki.NewCA("first"), testpki.NewCA("second"), testpki.NewCA("third")
	n.create(kubeletCA(first))
	n.Must(n.MakeToken(n.Ctx, "token1"))
	n.Must(n.PutToken("10-token", "token1"))
	page := n.runbook("rollout.md")
	reader, err := n.Plane.Kubeconfig(cluster.Server, csr.User("node"), csr.Group)
	n.Must(err)
	kubeconfig, err := os.ReadFile(reader)
	n.Must(err)
	n.Must(n.Host.PutFile("/root/reader.kubeconfig", host.File{Data: kubeconfig, Mode: 0o600}))
	n.Must(n.Host.PutFile("/root/both.crt", host.File{Data: slices.Concat(first, second)}))

	const agent, canary, waves = "The agent itself", "A canary", "Waves"
	n.Run("systemctl", "start", cluster.Reader)
	page.host("kubelet-ca.crt", agent, 0)
	page.host("", agent, 1)
	n.AwaitFile(cluster.KubeletCA, first)
	page.run(0, "1 nodes: 1 follow", agent, 2)

	page.host("CN=second", canary, 0)
	n.awaitUnit(cluster.Reader, "up to date")
	n.AwaitFile(cluster.KubeletCA, slices.Concat(first, second))
	page.host("", canary, 1)
	n.AwaitFile(cluster.KubeletCA, first)
	n.awaitUnit(cluster.Reader, "up to date")

	page.host("", waves, 0)
	n.patch(kubeletCA(slices.Concat(first, third)))
	n.awaitUnit(cluster.Reader, "paused")
	n.AwaitFile(cluster.KubeletCA, slices.Concat(first, third))
	page.host("", waves, 1)
	n.awaitUnit(cluster.Reader, "up to date")

	page.run(0, "annotated", "Stop", 0)
	n.Await("the pause", func() bool { return n.Status().Paused == "rollout stopped" })
	page.run(0, "annotated", "Stop", 1)
	n.Await("the end of the pause", func() bool { return n.Status().Paused == "" })
	page.host("", "Roll back", 0)
	n.wantFile(cluster.KubeletCA, slices.Concat(first, third))
}
