// SPDX-License-Identifier: Apache-2.0

//go:build real

package e2e

import (
	"encoding/base64"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/cluster"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane/controllerconfig"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// held is the usual configuration with the shipped hold, which no test waits for.
var held = strings.Replace(cluster.Config, "trust: {holdRemovals: 0s, source: \"\"}\n", "", 1)

func TestWhatTheObjectDropsStaysAndTheAnnotationsAreObeyed(t *testing.T) {
	n, first := started(t, cluster.Options{Config: held})
	second := testpki.NewCA("second")
	n.awaitVersion(n.patch(kubeletCA(second)))
	n.wantFile(cluster.KubeletCA, slices.Concat(second, first))
	n.AwaitRecord(audit.Held, "NODECERT_FIELD=kubeAPIServerServingCAData")

	n.Run("systemctl", "restart", "node-cert-agent.service")
	n.Await("the hold after a restart", func() bool { s := n.Status(); return len(s.Held) == 1 && s.State == "following" })
	n.wantFile(cluster.KubeletCA, slices.Concat(second, first))

	_, err := n.Store.Annotate(n.Ctx, "node-cert-agent.io/paused", "change freeze")
	n.Must(err)
	n.Await("the pause", func() bool { return n.Status().Paused == "change freeze" })
	fp := pki.Read(first).Certs[0].Fingerprint.String()
	_, err = n.Store.Annotate(n.Ctx, "node-cert-agent.io/revoke", "sha256:"+fp)
	n.Must(err)
	third := testpki.NewCA("third")
	n.awaitVersion(n.patch(kubeletCA(slices.Concat(second, third))))
	n.wantFile(cluster.KubeletCA, slices.Concat(second, third, first))

	v, err := n.Store.Annotate(n.Ctx, "node-cert-agent.io/paused", "")
	n.Must(err)
	if s := n.awaitVersion(v); s.Paused != "no reason given" {
		t.Errorf("an empty reason gives %q", s.Paused)
	}
	_, err = n.Store.Unannotate(n.Ctx, "node-cert-agent.io/paused")
	n.Must(err)
	n.AwaitFile(cluster.KubeletCA, slices.Concat(second, third))
	n.Await("the end of holds", func() bool { return len(n.Status().Held) == 0 })
}

func TestAnOperatorHelpsAHostWithoutAnAPIServer(t *testing.T) {
	n, first := started(t, cluster.Options{})
	n.Must(n.Plane.StopAPIServer(n.Ctx, syscall.SIGKILL))
	n.awaitState("unreachable")
	byHand := testpki.NewCA("by hand")
	n.put("/root/cc.yaml", fmt.Sprintf("apiVersion: node-cert-agent.io/v1alpha1\nkind: ControllerConfig\nmetadata: "+
		"{name: machine-config-controller}\nspec:\n  kubeAPIServerServingCAData: %s\n",
		base64.StdEncoding.EncodeToString(byHand)))
	reloads := n.Loads(n.Ctx, "reload")
	if out, err := n.Host.Run(n.Ctx, "node-cert-agent", "diff", "-f", "/root/cc.yaml"); err == nil ||
		!strings.Contains(out, "write   "+cluster.KubeletCA) {
		t.Errorf("diff says %q, %v", out, err)
	}
	n.wantFile(cluster.KubeletCA, first)
	if out := n.Run("node-cert-agent", "apply", "-f", "/root/cc.yaml", "--now"); !strings.HasSuffix(out, "applied") {
		t.Errorf("apply says %q", out)
	}
	n.wantFile(cluster.KubeletCA, byHand)
	n.wantFile("/etc/kubernetes/ca.crt", first)
	n.Await("the reload", func() bool { return n.Loads(n.Ctx, "reload") == reloads+1 })
	n.AwaitRecord(audit.OverrideSet)
	if got := n.Run("stat", "-c", "%U %a",
		"/var/lib/node-cert-agent/operator/applied.json"); got != "node-cert-agent 600" {
		t.Errorf("the local override is %s", got)
	}

	n.Must(n.Plane.StartAPIServer(n.Ctx))
	n.awaitState("following")
	n.Await("the ControllerConfig under the word", func() bool {
		s := n.Status()
		return s.Override != nil && s.Override.State == "in force" && s.Error == ""
	})
	n.wantFile(cluster.KubeletCA, byHand)
	next := testpki.NewCA("next")
	n.awaitVersion(n.patch(kubeletCA(next)))
	n.wantFile(cluster.KubeletCA, next)
	n.AwaitRecord(audit.OverrideReverted)

	// Without the service the command does it, and the service finds it in force.
	n.Run("systemctl", "stop", "node-cert-agent.service")
	if out := n.Run("node-cert-agent", "apply", "-f", "/root/cc.yaml", "--now"); !strings.HasSuffix(out, "applied") {
		t.Errorf("apply without the service says %q", out)
	}
	n.wantFile(cluster.KubeletCA, byHand)
	n.Must(n.StartAgent(n.Ctx))
	n.Await("the service with the word", func() bool {
		s := n.Status()
		return s.State == "following" && s.Override != nil && s.Override.State == "in force"
	})
	n.wantFile(cluster.KubeletCA, byHand)
	n.Run("node-cert-agent", "apply", "--revert")
	n.AwaitFile(cluster.KubeletCA, next)

	n.Run("node-cert-agent", "pause", "--for", "1h", "storage")
	n.Await("the pause", func() bool { return strings.HasPrefix(n.Status().Paused, "storage") })
	n.Run("node-cert-agent", "resume")
	n.Await("its end", func() bool { return n.Status().Paused == "" })
}

// put writes a file of root's on the host.
func (n *node) put(path, content string) {
	n.T.Helper()
	n.Must(os.WriteFile(n.Host.Path(path), []byte(content), 0o600))
}

func TestTheAgentFollowsTheAPIServersCAAndDoesNotLockItselfOut(t *testing.T) {
	const file = "/etc/kubernetes/ca.crt"
	dir := t.TempDir()
	first, next := testpki.New("first", testpki.ECDSA), testpki.New("next", testpki.ECDSA)
	serve(t, dir, first)
	n := start(t, cluster.Options{Bootstrap: true, Config: strings.Replace(patientConfig, `source: ""`,
		"source: rootCAData", 1),
		Plane: controlplane.Options{APIServerArgs: []string{"--tls-sni-cert-key=" + dir + "/sni.crt," + dir +
			"/sni.key:localhost"}}})
	n.Must(n.Host.PutFile("/etc/hosts", host.File{Data: []byte("127.0.0.1 localhost\n")}))
	root := func(pem []byte) controllerconfig.Spec {
		return controllerconfig.Spec{KubeAPIServerServingCAData: first.PEM(), RootCAData: pem}
	}
	n.create(root(first.PEM()))
	n.Must(n.MakeToken(n.Ctx, "token1"))
	n.Must(n.PutTokenWithCA("https://localhost:6443", first.PEM(), "10-token", "token1"))
	n.Must(n.StartAgent(n.Ctx))
	n.AwaitApproved()
	n.AwaitFile(file, first.PEM())

	both := slices.Concat(first.PEM(), next.PEM())
	n.patch(root(both))
	n.AwaitFile(file, both)
	n.Must(n.Plane.StopAPIServer(n.Ctx, syscall.SIGKILL))
	serve(t, dir, next)
	n.Must(n.Plane.StartAPIServer(n.Ctx))
	n.follows()

	n.patch(root(first.PEM())) // a mistake, which would have locked the agent out
	n.Await("the hold", func() bool {
		s := n.Status()
		return len(s.Held) == 1 && strings.Contains(s.Held[0].Reason, "cannot be verified with what would be left")
	})
	n.wantFile(file, both)
	n.Run("systemctl", "restart", "node-cert-agent.service")
	n.follows()
	n.wantFile(file, both)

	n.patch(root(next.PEM()))
	n.AwaitFile(file, next.PEM())
	n.follows()
}
