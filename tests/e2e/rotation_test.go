// SPDX-License-Identifier: Apache-2.0

//go:build real

package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/cluster"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// TestTheRotationPageIsAsWritten runs the blocks of docs/usage/rotation.md: the node is off while the new CA comes, and
// the old one goes from the source long before the node is back. Nobody but the shipped controller writes the
// ControllerConfig or approves.
func TestTheRotationPageIsAsWritten(t *testing.T) {
	n := start(t, cluster.Options{Bootstrap: true, Shipped: true, Config: patientConfig})
	n.Must(n.Plane.InstallPublisher(n.Ctx))
	n.Must(n.Plane.Apply(n.Ctx, []byte("{apiVersion: v1, kind: Node, metadata: {name: node}}")))
	n.controller("--controllers=approver,publisher")
	n.Must(n.MakeToken(n.Ctx, "token1"))
	n.Must(n.PutToken("10-token", "token1"))
	n.Must(n.StartAgent(n.Ctx))

	first, second := testpki.NewCA("first"), testpki.NewCA("second")
	page := n.runbook("rotation.md")
	n.Must(os.WriteFile(filepath.Join(page.dir, "old.crt"), first, 0o600))
	n.Must(os.WriteFile(filepath.Join(page.dir, "new.crt"), second, 0o600))
	page.run(0, "", "Before you begin", 0)
	page.run(0, "1 of 1 nodes have them\n", "Before you begin", 1)
	page.run(0, "1 nodes: 1 follow, 0 never reported", "Before you begin", 1)
	n.AwaitFile(cluster.KubeletCA, first)

	n.Run("systemctl", "stop", "node-cert-agent.service")
	page.run(0, "", "1. Add the new CA", 0)
	n.awaitOfNodeBundle("{.status.counts.certificates} {.status.counts.nodes}", "2 0/1")
	page.run(1, "0 of 1 nodes have them; node has not reported since it was asked\n", "2. Wait for every node", 0)
	page.run(0, "", "4. Take the old CA out", 0)
	n.awaitOfNodeBundle("{.status.blocking[*].node}: {.status.blocking[*].reason}",
		"node: has not reported since it was asked")
	page.run(0, "\thas not reported since it was asked\n", "4. Take the old CA out", 2)
	page.run(1, "timed out", "4. Take the old CA out", 1)
	n.awaitOfNodeBundle("{.status.counts.certificates} {.status.counts.held}", "2 1")
	page.kubectl("the NodeBundle kubelet-clients: it has not reported", "node-certs", "why", "node")
	page.kubectl(`"field": "kubeAPIServerServingCAData"`, "node-certs", "certs", "-o", "json")

	n.Must(n.StartAgent(n.Ctx))
	n.awaitOfNodeBundle(`{.status.conditions[?(@.type=="Converged")].reason} {.status.counts.nodes}`, "Converged 1/1")
	page.run(0, "condition met", "4. Take the old CA out", 1)
	page.run(0, "1 of 1 nodes have them\n", "2. Wait for every node", 0)
	n.AwaitFile(cluster.KubeletCA, second)
	n.awaitUnit(cluster.Reader, "up to date")
	page.run(0, "1 of 1 nodes have them\n", "Undo", 0)
}

// controller runs the shipped one until the test ends.
func (n *node) controller(args ...string) {
	n.T.Helper()
	binary := filepath.Join(n.T.TempDir(), "node-cert-controller")
	n.Must(cluster.Build(n.Ctx, binary))
	controller, err := cluster.StartApprover(n.Plane, binary, args...)
	n.Must(err)
	n.T.Cleanup(controller.Stop)
}

// awaitOfNodeBundle waits until kubectl prints that for the path.
func (n *node) awaitOfNodeBundle(path, want string) {
	n.T.Helper()
	got := ""
	defer func() {
		if n.T.Failed() {
			n.T.Logf("%s of the NodeBundle was last %q", path, got)
		}
	}()
	n.Await("the NodeBundle to say "+want, func() bool {
		got, _ = n.Plane.Kubectl(n.Ctx, "get", "nodebundle", "kubelet-clients", "-o", "jsonpath="+path)
		return got == want
	})
}
