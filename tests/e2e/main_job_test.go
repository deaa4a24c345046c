// SPDX-License-Identifier: Apache-2.0

//go:build real

package e2e

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/cluster"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane/controllerconfig"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

func TestAHostFollowsOurObject(t *testing.T) { theMainJob(t, controllerconfig.Small, "") }

func TestAHostFollowsOpenShiftsRealObject(t *testing.T) {
	theMainJob(t, controllerconfig.OpenShift,
		"controllerConfig: {group: machineconfiguration.openshift.io, version: v1}\n")
}

// theMainJob is the life of a bundle: first sync, expand, prune, an object written again without a
// change, and drift.
func theMainJob(t *testing.T, api controllerconfig.API, config string) {
	n := start(t, cluster.Options{API: api, Config: cluster.Config + config})
	a, b, r := testpki.NewCA("a"), testpki.NewCA("b"), testpki.NewCA("registry")
	spec := controllerconfig.Spec{KubeAPIServerServingCAData: a, RootCAData: b, CloudProviderCAData: a,
		AdditionalTrustBundle: append(slices.Clone(a), b...),
		ImageRegistryBundleData: []controllerconfig.Registry{{File: "registry.example..5000", Data: r},
			{File: "both", Data: a}},
		ImageRegistryBundleUserData: []controllerconfig.Registry{{File: "both", Data: b}}}
	n.Run("mkdir", "-p", "/etc/kubernetes/static-pod-resources/configmaps/cloud-config")
	n.create(spec)
	n.Must(n.StartAgent(n.Ctx))

	n.AwaitFile(cluster.KubeletCA, a)
	n.Await("the first sync", func() bool {
		s := n.Status()
		return s.State == "following" && len(s.Files) == 7 && s.Error == ""
	})
	n.wantFile("/etc/kubernetes/ca.crt", b)
	n.wantFile("/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem", a)
	n.wantFile(certsD("registry.example:5000"), r)
	n.wantFile(certsD("both"), b) // the user's list wins
	if got := n.Run("stat", "-c", "%U:%G %a", cluster.KubeletCA, certsD("both")); got != "root:root 644\nroot:root 644" {
		t.Errorf("owners and modes are %q", got)
	}
	if out := n.Run("sh", "-c", "ls /usr/local/share/ca-certificates/*.crt | wc -l"); out != "2" {
		t.Errorf("the trust bundle became %s files, want one a certificate", out)
	}
	n.awaitUnit(cluster.Reader, "up to date")

	reloads := n.Loads(n.Ctx, "reload")
	grown := append(slices.Clone(a), b...)
	n.awaitVersion(n.patch(kubeletCA(grown)))
	n.wantFile(cluster.KubeletCA, grown)
	n.Await("the reload", func() bool { return n.Loads(n.Ctx, "reload") == reloads+1 })
	n.wantFile("/run/reader.loaded", grown)

	n.awaitVersion(n.patch(kubeletCA(b)))
	n.wantFile(cluster.KubeletCA, b)
	n.Await("the second reload", func() bool { return n.Loads(n.Ctx, "reload") == reloads+2 })
	n.awaitUnit(cluster.Reader, "up to date")

	before, writes := n.stamp(cluster.KubeletCA), n.Status().Writes
	v, err := n.Store.Annotate(n.Ctx, "example.org/touched", "yes")
	n.Must(err)
	s := n.awaitVersion(v)
	if after := n.stamp(cluster.KubeletCA); after != before || s.Writes != writes {
		t.Errorf("a new version without a change wrote: %q became %q, %d writes became %d", before, after, writes, s.Writes)
	}
	n.wantLoads("reload", reloads+2)

	n.Run("sh", "-c", "echo scribble > "+cluster.KubeletCA)
	n.AwaitFile(cluster.KubeletCA, b)
	n.Run("mv", "/etc/docker/certs.d/both", "/etc/docker/gone") // at once: the repair may be quicker than rm -r
	n.AwaitFile(certsD("both"), b)
	n.AwaitRecord(audit.Written, "NODECERT_CAUSE=missing", "NODECERT_ENTRY=both")

	n.awaitVersion(n.patch(controllerconfig.Spec{ImageRegistryBundleData: []controllerconfig.Registry{{File: "both",
		Data: a}}}))
	n.wantFile(certsD("registry.example:5000"), nil)
	n.wantFile(certsD("both"), b)
	if _, err := os.Stat(n.Host.Path("/etc/docker/certs.d/registry.example:5000")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the registry's directory: %v, want it gone with its file", err)
	}
}

func TestTheAgentHasNoPrivilegeAndTheWriterNoNetwork(t *testing.T) {
	n, _ := started(t, cluster.Options{})
	for unit, want := range map[string]string{"node-cert-agent.service": "node-cert-agent 0000000000000000",
		"node-cert-agent-writer.service": "root 0000000000000000"} {
		pid := n.Run("systemctl", "show", "-P", "MainPID", unit)
		user := n.Run("stat", "-c", "%U", "/proc/"+pid)
		caps := strings.Fields(n.Run("grep", "CapEff", "/proc/"+pid+"/status"))[1]
		if user+" "+caps != want {
			t.Errorf("%s runs as %s with %s, want %s", unit, user, caps, want)
		}
	}
	writer := n.Run("systemctl", "show", "-P", "MainPID", "node-cert-agent-writer.service")
	if links := n.Run("cat", "/proc/"+writer+"/net/dev"); strings.Contains(links, "host0") ||
		strings.Count(links, ":") != 1 {
		t.Errorf("the writer sees the interfaces\n%s", links)
	}
	var failed *host.ExitError
	for _, act := range [][]string{
		{"sh", "-c", "echo x > /etc/kubernetes/kubelet-env"},
		{"sh", "-c", "echo x > " + cluster.KubeletCA},
		{"mv", cluster.KubeletCA, "/etc/kubernetes/other"},
		{"sh", "-c", "echo x > " + cluster.Fragment},
		{"mv", "/run/node-cert-agent/config.d", "/run/node-cert-agent/gone"},
		{"sh", "-c", "echo x > /run/node-cert-agent/config.d/99-x.yaml"},
	} {
		if out, err := n.Host.RunAs(n.Ctx, "node-cert-agent", act...); !errors.As(err, &failed) {
			t.Errorf("the agent's user could %q: %q, %v", act, out, err)
		}
	}
}

// ask asks systemd as the agent's user; the answer is the error's text, or nothing.
func ask(ctx context.Context, n *node, method string, args ...string) string {
	_, err := n.Host.RunAs(ctx, "node-cert-agent", append([]string{"busctl", "call", "org.freedesktop.systemd1",
		"/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager", method}, args...)...)
	if failed, ok := errors.AsType[*host.ExitError](err); ok {
		return failed.Stderr
	}
	n.Must(err)
	return ""
}

func TestSystemdItselfRefusesTheAgentsUserEverything(t *testing.T) {
	n, _ := started(t, cluster.Options{})
	for _, try := range [][]string{
		{"ReloadUnit", "ss", cluster.Reader, "replace"}, // which the reloader would carry out
		{"ReloadUnit", "ss", cluster.Reader, "flush"},
		{"ReloadUnit", "ss", cluster.Unlisted, "replace"},
		{"TryRestartUnit", "ss", cluster.Reader, "replace"},
		{"RestartUnit", "ss", cluster.Reader, "replace"},
		{"StartUnit", "ss", cluster.Unlisted, "replace"},
		{"StopUnit", "ss", cluster.Reader, "replace"},
		{"Reload"},
		{"Reboot"},
	} {
		if said := ask(n.Ctx, n, try[0], try[1:]...); !strings.Contains(said, "denied") &&
			!strings.Contains(said, "Rejected") && !strings.Contains(said, "authorization") &&
			!strings.Contains(said, "authentication required") {
			t.Errorf("%q was answered with %q, want a refusal", try, said)
		}
	}
	if state := n.Run("systemctl", "show", "-P", "ActiveState", cluster.Reader); state != "active" {
		t.Errorf("%s is %s", cluster.Reader, state)
	}
}

func TestBadBundlesAreRefusedAndTheLastGoodFileStays(t *testing.T) {
	n, first := started(t, cluster.Options{})
	authority := testpki.New("with-key", testpki.ECDSA)
	for sentence, bad := range map[string]any{
		"one newline":           kubeletCA([]byte("\n")),
		"not PEM":               kubeletCA([]byte("certificate")),
		"truncated":             kubeletCA(first[:len(first)/2]),
		"damaged in the middle": kubeletCA(bytes.Join([][]byte{first, first[:100], first}, nil)),
		"with a private key":    kubeletCA(append(slices.Clone(first), authority.KeyPEM()...)),
		"null":                  map[string]any{"kubeAPIServerServingCAData": nil},
	} {
		n.patch(bad)
		root := testpki.NewCA(sentence)
		s := n.awaitVersion(n.patch(controllerconfig.Spec{RootCAData: root}))
		n.wantFile(cluster.KubeletCA, first)
		n.wantFile("/etc/kubernetes/ca.crt", root) // the other files go on
		if refused := sentence != "null"; (len(s.Refused) == 1) != refused {
			t.Errorf("%s: refused is %v", sentence, s.Refused)
		}
	}
	registry := controllerconfig.Spec{ImageRegistryBundleData: []controllerconfig.Registry{{File: "r", Data: first}}}
	n.awaitVersion(n.patch(registry))
	for sentence, empty := range map[string]any{"empty": []any{}, "null": nil} {
		s := n.awaitVersion(n.patch(map[string]any{"imageRegistryBundleData": empty}))
		n.wantFile(certsD("r"), first)
		if !slices.ContainsFunc(s.Retained, func(k plan.Refusal) bool { return k.Name == "r" }) {
			t.Errorf("a list that is %s: kept is %v", sentence, s.Retained)
		}
	}
	e := n.AwaitRecord(audit.Refused, "NODECERT_REASON=holds a private key")
	if e["NODECERT_FIELD"] != "kubeAPIServerServingCAData" || strings.Contains(e["MESSAGE"], "BEGIN") {
		t.Errorf("the record is %v", e)
	}
	if out := n.Run("node-cert-agent", "status"); !strings.Contains(out, cluster.KubeletCA) {
		t.Errorf("status prints\n%s", out)
	}
	n.wantLoads("reload", n.Records(audit.UnitActionDone))
}
