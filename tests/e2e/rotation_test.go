// SPDX-License-Identifier: Apache-2.0

//go:build real

package e2e

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/cluster"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// TestTheRotationPageIsAsWritten runs the blocks of docs/usage/rotation.md on three nodes: one is off while the new CA
// comes, and the old one goes from the source long before that node is back. Nobody but the shipped controller writes
// the ControllerConfig or approves. The kubelets accept clients of a CA as long as they should.
func TestTheRotationPageIsAsWritten(t *testing.T) {
	n, on := threeNodes(t)
	old, young := testpki.New("old", testpki.ECDSA), testpki.New("new", testpki.ECDSA)
	page := n.runbook("rotation.md")
	n.Must(os.WriteFile(filepath.Join(page.dir, "old.crt"), old.PEM(), 0o600))
	n.Must(os.WriteFile(filepath.Join(page.dir, "new.crt"), young.PEM(), 0o600))
	page.run(0, "", "Before you begin", 0)
	page.run(0, "3 of 3 nodes have them\n", "Before you begin", 1)
	page.run(0, "3 nodes: 3 follow, 0 never reported", "Before you begin", 1)
	for _, x := range append(on, n) {
		x.AwaitFile(cluster.KubeletCA, bundle(old))
		x.Run("systemctl", "start", cluster.Kubelet)
		x.awaitKubelet(old, http.StatusOK)
		x.awaitKubelet(young, http.StatusUnauthorized)
	}

	n.Host.Kill()
	page.run(0, "", "1. Add the new CA", 0)
	n.awaitOfNodeBundle("{.status.counts.certificates} {.status.counts.nodes}", "2 2/3")
	var refused []func()
	for _, x := range on {
		x.awaitKubelet(young, http.StatusOK)
		refused = append(refused, x.neverRefuses(young), x.neverRefuses(old))
	}
	page.run(1, "2 of 3 nodes have them; node has not reported since it was asked\n", "2. Wait for every node", 0)
	page.run(0, "", "4. Take the old CA out", 0)
	n.awaitOfNodeBundle("{.status.blocking[*].node}: {.status.blocking[*].reason}",
		"node: has not reported since it was asked")
	page.run(0, "\thas not reported since it was asked\n", "4. Take the old CA out", 2)
	page.run(1, "timed out", "4. Take the old CA out", 1)
	n.awaitOfNodeBundle("{.status.counts.certificates} {.status.counts.held}", "2 1")
	page.kubectl("the NodeBundle kubelet-clients: it has not reported", "node-certs", "why", "node")
	page.kubectl(`"field": "kubeAPIServerServingCAData"`, "node-certs", "certs", "-o", "json")
	for _, x := range on {
		x.wantFile(cluster.KubeletCA, bundle(old, young))
	}
	for _, stop := range refused {
		stop()
	}

	n.Must(n.Host.Start(n.Ctx))
	n.Must(n.StartAgent(n.Ctx))
	n.Run("systemctl", "start", cluster.Kubelet)
	n.awaitOfNodeBundle(`{.status.conditions[?(@.type=="Converged")].reason} {.status.counts.nodes}`, "Converged 3/3")
	page.run(0, "condition met", "4. Take the old CA out", 1)
	page.run(0, "3 of 3 nodes have them\n", "2. Wait for every node", 0)
	for _, x := range append(on, n) {
		x.AwaitFile(cluster.KubeletCA, bundle(young))
		x.awaitKubelet(young, http.StatusOK)
		x.awaitKubelet(old, http.StatusUnauthorized)
		x.awaitUnit(cluster.Reader, "up to date")
	}
	page.run(0, "3 of 3 nodes have them\n", "Undo", 0)
}

// threeNodes are one that a test may switch off and two that stay on, whose agents got their identities with a token.
func threeNodes(t *testing.T) (n *node, on []*node) {
	n = start(t, cluster.Options{Bootstrap: true, Shipped: true, Kubelet: true, Config: patientConfig})
	n.Must(n.Plane.InstallPublisher(n.Ctx))
	n.controller("--controllers=approver,publisher")
	n.Must(n.MakeToken(n.Ctx, "token1"))
	for _, name := range []string{"node-2", "node-3"} {
		on = append(on, &node{n.Join(cluster.Options{Bootstrap: true, Kubelet: true,
			Config: strings.Replace(patientConfig, "{name: node}", "{name: "+name+"}", 1)})})
		n.Must(n.Plane.Apply(n.Ctx, []byte("{apiVersion: v1, kind: Node, metadata: {name: "+name+"}}")))
	}
	n.Must(n.Plane.Apply(n.Ctx, []byte("{apiVersion: v1, kind: Node, metadata: {name: node}}")))
	for _, x := range append(on, n) {
		n.Must(x.PutToken("10-token", "token1"))
		n.Must(x.StartAgent(n.Ctx))
	}
	return n, on
}

// neverRefuses asks the kubelet as a client of a CA, again and again until stop, and fails the test if it was refused.
func (n *node) neverRefuses(by *testpki.Authority) (stop func()) {
	ctx, cancel := context.WithCancel(n.Ctx)
	client, refusals, asked := by.Client("client", "system:masters"), 0, 0
	var asking sync.WaitGroup
	asking.Go(func() {
		for tick := time.NewTicker(20 * time.Millisecond); ctx.Err() == nil; <-tick.C {
			code, err := n.Ask(ctx, cluster.KubeletAddress, "/healthz", client)
			if asked++; err == nil && code != http.StatusOK {
				refusals++
			}
		}
	})
	return func() {
		cancel()
		asking.Wait()
		if refusals > 0 || asked == 0 {
			n.T.Errorf("of %d times, a client of %s was refused %d times", asked, by.Cert.Subject, refusals)
		}
	}
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
