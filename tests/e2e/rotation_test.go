// SPDX-License-Identifier: Apache-2.0

//go:build real

package e2e

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/cluster"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// TestAnOldCAGoesWhenTheNodeHasTheNewOne: the node is off while the new CA comes, and the old one goes from the source
// long before the node is back. Nobody but the shipped controller writes the ControllerConfig or approves.
func TestAnOldCAGoesWhenTheNodeHasTheNewOne(t *testing.T) {
	n := start(t, cluster.Options{Bootstrap: true, Shipped: true, Config: patientConfig})
	n.Must(n.Plane.InstallPublisher(n.Ctx))
	n.Must(n.Plane.Apply(n.Ctx, []byte("{apiVersion: v1, kind: Node, metadata: {name: node}}")))
	binary := filepath.Join(t.TempDir(), "node-cert-controller")
	n.Must(cluster.Build(n.Ctx, binary))
	controller, err := cluster.StartApprover(n.Plane, binary, "--controllers=approver,publisher")
	n.Must(err)
	t.Cleanup(controller.Stop)

	first, second := testpki.NewCA("first"), testpki.NewCA("second")
	both := slices.Concat(first, second)
	n.nodeBundle(first)
	n.Must(n.MakeToken(n.Ctx, "token1"))
	n.Must(n.PutToken("10-token", "token1"))
	n.Must(n.StartAgent(n.Ctx))
	n.AwaitFile(cluster.KubeletCA, first)
	n.awaitOfNodeBundle("{.status.counts.nodes} {.status.counts.held}", "1/1 0")
	plugin := filepath.Join(t.TempDir(), "kubectl-node_certs")
	n.Must(cluster.Build(n.Ctx, plugin))
	n.nodeCerts(plugin, 0, "1 of 1 nodes have them\n", "wait", "--field=kubeAPIServerServingCAData",
		"--sha256="+sha256Of(first))
	n.nodeCerts(plugin, 0, "1 nodes: 1 follow, 0 never reported", "status")

	n.Run("systemctl", "stop", "node-cert-agent.service")
	n.nodeBundle(both)
	n.awaitOfNodeBundle("{.status.counts.certificates} {.status.counts.nodes}", "2 0/1")
	n.nodeCerts(plugin, 1, "0 of 1 nodes have them; node has not reported since it was asked\n", "wait", "--timeout=3s",
		"--field=kubeAPIServerServingCAData", "--sha256="+sha256Of(first)+","+sha256Of(second))
	n.nodeBundle(second)
	n.awaitOfNodeBundle("{.status.blocking[*].node}: {.status.blocking[*].reason}",
		"node: has not reported since it was asked")
	n.awaitOfNodeBundle("{.status.counts.certificates} {.status.counts.held}", "2 1")

	n.Must(n.StartAgent(n.Ctx))
	n.awaitOfNodeBundle(`{.status.conditions[?(@.type=="Converged")].reason} {.status.counts.nodes}`, "Converged 1/1")
	n.AwaitFile(cluster.KubeletCA, second)
	n.awaitUnit(cluster.Reader, "up to date")
}

// nodeCerts runs the plugin of kubectl.
func (n *node) nodeCerts(plugin string, code int, want string, args ...string) {
	n.T.Helper()
	cmd := exec.CommandContext(n.Ctx, plugin, append([]string{"--kubeconfig",
		filepath.Join(n.Plane.Dir(), "admin.kubeconfig")}, args...)...)
	out, _ := cmd.CombinedOutput() // the exit code says it
	if got := cmd.ProcessState.ExitCode(); got != code || !strings.Contains(string(out), want) {
		n.T.Errorf("%v: exit code %d, %s", args, got, out)
	}
}

func sha256Of(ca []byte) string { return pki.Read(ca).Certs[0].Fingerprint.String() }

// nodeBundle has one inline source for the kubelet's client CAs.
func (n *node) nodeBundle(certificates []byte) {
	n.T.Helper()
	text, err := json.Marshal(string(certificates))
	n.Must(err)
	n.Must(n.Plane.Apply(n.Ctx, fmt.Appendf(nil, `{apiVersion: node-cert-agent.io/v1alpha1, kind: NodeBundle,
		metadata: {name: kubelet}, spec: {field: kubeAPIServerServingCAData, sources: [{inline: %s}]}}`, text)))
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
		got, _ = n.Plane.Kubectl(n.Ctx, "get", "nodebundle", "kubelet", "-o", "jsonpath="+path)
		return got == want
	})
}
