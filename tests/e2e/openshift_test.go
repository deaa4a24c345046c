// SPDX-License-Identifier: Apache-2.0

//go:build real

package e2e

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/cluster"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane/controllerconfig"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/kubeconfigs"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

const (
	bootstrapKubeconfig = "/etc/kubernetes/kubeconfig"
	kubeletKubeconfig   = "/var/lib/kubelet/kubeconfig"
	pullSecret          = "/etc/mco/internal-registry-pull-secret.json"
	kubeletUnit         = "kubelet.service"

	// nodeToken is in the kubeconfigs and nowhere else.
	nodeToken = "node-bootstrapper-41fe"

	openShift = `apiVersion: config.node-cert-agent.io/v1alpha1
profile: openshift
files:
  kubeletKubeconfigCAData: {onChange: [kubelet.service]}
units:
  kubelet.service: {verb: try-restart}
actions: {batchWindow: 200ms, randomizedDelay: 0s}
watch: {retryJitter: 200ms, retryMax: 1s}
trust: {holdRemovals: 0s}
`
)

func machineConfigServers(ca []byte) []byte { return kubeconfigs.Node(ca, nodeToken) }

// openShiftFiles are a host as OpenShift leaves it, with this CA in both kubeconfigs. Its kubelet has noted its
// start and what it loads before systemd calls it started.
func openShiftFiles(ca []byte) map[string]host.File {
	dropin, err := os.ReadFile("../../packaging/openshift/writer.conf")
	if err != nil {
		panic(err)
	}
	return map[string]host.File{
		"/etc/systemd/system/node-cert-agent-writer.service.d/50-openshift.conf": {Data: dropin},
		"/etc/systemd/system/" +
			kubeletUnit: {Data: []byte("[Service]\nExecStartPre=/bin/sh -c 'echo start >>/run/kubelet.log; cp " +
			kubeletKubeconfig + " /run/kubelet.loaded'\nExecStart=/bin/sleep infinity\n")},
		bootstrapKubeconfig: {Data: machineConfigServers(ca),
			Mode: 0o644},
		kubeletKubeconfig: {Data: machineConfigServers(ca), Mode: 0o600},
	}
}

// startOpenShift is such a host with OpenShift's own object.
func startOpenShift(t *testing.T, ca []byte) *node {
	t.Helper()
	n := start(t, cluster.Options{API: controllerconfig.OpenShift, Config: openShift,
		Host: host.Options{Files: openShiftFiles(ca)}})
	n.prepareOpenShift()
	return n
}

func (n *node) prepareOpenShift() {
	n.T.Helper()
	n.Must(n.Plane.InstallOpenShift(n.Ctx))
	n.Run("mkdir", "-p", "/etc/mco", "/etc/kubernetes/static-pod-resources/configmaps/cloud-config")
	n.Run("systemctl", "start", kubeletUnit)
}

// publishCA writes the ConfigMap as OpenShift's operator does.
func (n *node) publishCA(pem []byte) {
	n.T.Helper()
	b, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata":   map[string]any{"name": "kubeconfig-data", "namespace": controlplane.MachineConfigNamespace},
		"binaryData": map[string]any{"ca-bundle.crt": pem}})
	n.Must(err)
	n.Must(n.Plane.Apply(n.Ctx, b))
}

func (n *node) awaitConfigMap(state report.SourceState) {
	n.T.Helper()
	n.Await("the ConfigMap "+string(state), func() bool { c := n.Status().ConfigMap; return c != nil && c.State == state })
}

// forms are the ways in which a secret may be written: as it is if that is text, in hexadecimal, and in
// base64 wherever it begins there.
func forms(secret string) []string {
	all := []string{hex.EncodeToString([]byte(secret))}
	if !strings.ContainsFunc(secret, func(r rune) bool { return r < ' ' || r > '~' }) {
		all = append(all, secret)
	}
	for skip := range 3 {
		b := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", skip) + secret))
		all = append(all, strings.TrimRight(b, "=")[(8*skip+5)/6:len(b)-4]) // without what depends on its neighbours
	}
	return all
}

// hides fails if the text has the secret in any form.
func (n *node) hides(what, text, secret string) {
	n.T.Helper()
	for _, form := range forms(secret) {
		if strings.Contains(text, form) {
			n.T.Errorf("%s has a secret", what)
		}
	}
}

// wantNowhere fails if the journal has the secret, or a file that is not below one of those named. It tells
// how many of these have it.
func (n *node) wantNowhere(secret string, except ...string) (found int) {
	n.T.Helper()
	n.hides("the journal", n.Journal("-o", "export", "--all"), secret)
	grep := []string{"grep", "-rlaF"}
	for _, form := range forms(secret) {
		grep = append(grep, "-e", form)
	}
	out, _ := n.Host.Run(n.Ctx, append(grep, "/etc", "/run", "/var", "/tmp")...) // 1 if there is none
	for file := range strings.Lines(out) {
		if slices.ContainsFunc(except, func(e string) bool { return strings.HasPrefix(file, e) }) {
			found++
		} else {
			n.T.Errorf("%s has a secret", strings.TrimSpace(file))
		}
	}
	return found
}

func TestTheCAOfBothKubeconfigsIsRotatedOnARealHost(t *testing.T) {
	old, next := testpki.NewCA("old"), testpki.NewCA("next")
	n := startOpenShift(t, old)
	n.create(controllerconfig.Spec{KubeAPIServerServingCAData: old, RootCAData: old})
	n.publishCA(old)
	n.Must(n.StartAgent(n.Ctx))
	n.AwaitFile(cluster.KubeletCA, old)
	n.awaitConfigMap("following")
	n.awaitUnit(kubeletUnit, "up to date")
	stamps := n.stamp(bootstrapKubeconfig) + n.stamp(kubeletKubeconfig)

	both := append(append([]byte(nil), next...), old...)
	n.publishCA(both)
	n.AwaitFile(bootstrapKubeconfig, machineConfigServers(both))
	n.AwaitFile(kubeletKubeconfig, machineConfigServers(both))
	if stamps == n.stamp(bootstrapKubeconfig)+n.stamp(kubeletKubeconfig) {
		t.Error("the stamps cannot tell")
	}
	if got := n.Run("stat", "-c", "%U:%G %a", bootstrapKubeconfig,
		kubeletKubeconfig); got != "root:root 644\nroot:root 600" {
		t.Errorf("owners and modes became %q", got)
	}
	n.Await("the kubelet with the new CA", func() bool {
		return string(n.File("/run/kubelet.loaded")) == string(machineConfigServers(both))
	})
	n.awaitUnit(kubeletUnit, "up to date")
	wantStarts := func() {
		t.Helper()
		if starts := strings.Count(string(n.File("/run/kubelet.log")), "start"); starts != 2 {
			t.Errorf("the kubelet was started %d times, want once by us", starts)
		}
	}
	wantStarts()
	stamps = n.stamp(bootstrapKubeconfig) + n.stamp(kubeletKubeconfig)

	_, err := n.Plane.Kubectl(n.Ctx, "delete", "configmap", "-n", controlplane.MachineConfigNamespace, "kubeconfig-data")
	n.Must(err)
	n.awaitConfigMap("not found")
	n.Run("systemctl", "restart", "node-cert-agent.service")
	n.awaitVersion(n.patch(kubeletCA(next)))
	n.wantFile(cluster.KubeletCA, next) // the others go on
	n.awaitConfigMap("not found")
	if now := n.stamp(bootstrapKubeconfig) + n.stamp(kubeletKubeconfig); now != stamps {
		t.Error("a kubeconfig was touched although nothing asks for anything else")
	}
	n.Await("what is kept", func() bool { return len(n.Status().Retained) >= 2 })
	n.awaitUnit(kubeletUnit, "up to date")
	wantStarts()

	// Drift is still repaired, without the API.
	n.Must(n.Host.PutFile(bootstrapKubeconfig, host.File{Data: machineConfigServers([]byte("cut sho")), Mode: 0o600}))
	n.AwaitFile(bootstrapKubeconfig, machineConfigServers(both))
	n.wantNowhere(nodeToken, bootstrapKubeconfig, kubeletKubeconfig, "/run/kubelet.loaded")
}

func TestAPullSecretArrivesOnARealHostForRootOnly(t *testing.T) {
	const password = "kennwort-77c2-5f0e"
	a := testpki.NewCA("a")
	n := startOpenShift(t, a)
	n.publishCA(a)
	one, two := controllerconfig.PullSecret("puller", password+"-one"),
		controllerconfig.PullSecret("puller", password+"-two")
	n.create(controllerconfig.Spec{KubeAPIServerServingCAData: a, RootCAData: a, InternalRegistryPullSecret: one})
	n.Must(n.StartAgent(n.Ctx))
	n.AwaitFile(pullSecret, append(one, '\n'))
	if got := n.Run("stat", "-c", "%U:%G %a", pullSecret); got != "root:root 600" {
		t.Errorf("owner and mode are %s", got)
	}
	n.patch(controllerconfig.Spec{InternalRegistryPullSecret: two})
	n.AwaitFile(pullSecret, append(two, '\n'))
	n.AwaitRecord(audit.Written, "NODECERT_FIELD="+string(plan.InternalRegistryPullSecret))

	// What is no docker config, or none any more, changes nothing.
	n.awaitVersion(n.patch(controllerconfig.Spec{InternalRegistryPullSecret: []byte(`{"auths":{"x":{"auth":"` + password +
		`"}}}`)}))
	n.Await("a refusal", func() bool { return len(n.Status().Refused) == 1 })
	n.awaitVersion(n.patch(map[string]any{"internalRegistryPullSecret": nil}))
	n.wantFile(pullSecret, append(two, '\n'))
	n.Run("chmod", "0644", pullSecret)
	n.Await("mode 0600", func() bool { return n.Run("stat", "-c", "%a", pullSecret) == "600" })

	blobs := "/var/lib/node-cert-agent/blobs"
	if got := n.Run("sh", "-c", "stat -c '%U %a' "+blobs+"/* | sort -u"); got != "node-cert-agent 600" {
		t.Errorf("what is remembered is %s", got)
	}
	for _, secret := range []string{password, string(one[80:110]), string(two[80:110])} {
		n.wantNowhere(secret, pullSecret, blobs)
		if out := n.statusText() + n.Run("node-cert-agent", "status") +
			n.Run("node-cert-agent", "status", "-o", "json"); strings.Contains(out, secret) {
			t.Errorf("status shows a secret:\n%s", out)
		}
	}
}
