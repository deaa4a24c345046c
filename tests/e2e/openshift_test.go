// SPDX-License-Identifier: Apache-2.0

//go:build real

package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/tests/cluster"
	"github.com/node-cert-agent/node-cert-agent/tests/controlplane"
	"github.com/node-cert-agent/node-cert-agent/tests/controlplane/controllerconfig"
	"github.com/node-cert-agent/node-cert-agent/tests/host"
	"github.com/node-cert-agent/node-cert-agent/tests/testpki"
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
rows:
  kubeletKubeconfigCAData: {onChange: [kubelet.service]}
units:
  kubelet.service: {verb: try-restart}
actions: {coalesce: 200ms, spread: 0s}
follow: {retrySpread: 200ms, retryMax: 1s}
trust: {holdRemovals: 0s}
`
)

// machineConfigServers is the kubeconfig that a node of OpenShift gets, with what a rewrite would lose.
func machineConfigServers(ca []byte) []byte {
	return fmt.Appendf(nil, `# of the first boot
clusters:
- cluster:
    certificate-authority-data: %s # api-int
    server: https://api-int.example.test:6443
    x-unknown: {a: [1, 2]}
  name: local
contexts:
- context:
    cluster: local
    user: kubelet
  name: kubelet
current-context: kubelet
preferences: {}
users:
- name: kubelet
  user:
    token: %s
`, base64.StdEncoding.EncodeToString(ca), nodeToken)
}

// startOpenShift is a host as OpenShift leaves it, with OpenShift's own object and this CA in both
// kubeconfigs. Its kubelet is a program that notes when it starts.
func startOpenShift(t *testing.T, ca []byte) *node {
	t.Helper()
	n := start(t, cluster.Options{API: controllerconfig.OpenShift, Config: openShift, Host: host.Options{Files: map[string]host.File{
		"/etc/systemd/system/" + kubeletUnit: {Data: []byte("[Service]\nExecStart=/bin/sh -c 'cp " + kubeletKubeconfig + " /run/kubelet.loaded; echo start >>/run/kubelet.log; exec sleep infinity'\n")},
		bootstrapKubeconfig:                  {Data: machineConfigServers(ca), Mode: 0o644},
		kubeletKubeconfig:                    {Data: machineConfigServers(ca), Mode: 0o600},
	}}})
	n.must(n.Plane.InstallOpenShift(n.ctx))
	n.run("mkdir", "-p", "/etc/mco", "/etc/kubernetes/static-pod-resources/configmaps/cloud-config")
	n.run("systemctl", "start", kubeletUnit)
	return n
}

// publishCA writes the ConfigMap as OpenShift's operator does.
func (n *node) publishCA(pem []byte) {
	n.t.Helper()
	b, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata":   map[string]any{"name": "kubeconfig-data", "namespace": controlplane.MachineConfigNamespace},
		"binaryData": map[string]any{"ca-bundle.crt": pem}})
	n.must(err)
	n.must(n.Plane.Apply(n.ctx, b))
}

func (n *node) awaitConfigMap(state string) {
	n.t.Helper()
	n.await("the ConfigMap "+state, func() bool { c := n.status().ConfigMap; return c != nil && c.State == state })
}

// wantNowhere fails if the journal has the text, or a file that is not below one of those named.
func (n *node) wantNowhere(text string, except ...string) {
	n.t.Helper()
	journal, err := n.Host.Journal(n.ctx, "-o", "json", "--all")
	n.must(err)
	encoded := base64.StdEncoding.EncodeToString([]byte(text))
	if strings.Contains(journal, text) || strings.Contains(journal, encoded) {
		n.t.Error("the journal has a secret")
	}
	out, _ := n.Host.Run(n.ctx, "grep", "-rlaF", "-e", text, "-e", encoded, "/etc", "/run", "/var", "/tmp") // 1 if there is none
	for file := range strings.Lines(out) {
		allowed := false
		for _, e := range except {
			allowed = allowed || strings.HasPrefix(file, e)
		}
		if !allowed {
			n.t.Errorf("%s has a secret", strings.TrimSpace(file))
		}
	}
}

func TestTheCAOfBothKubeconfigsIsRotatedOnARealHost(t *testing.T) {
	old, next := testpki.NewCA("old"), testpki.NewCA("next")
	n := startOpenShift(t, old)
	n.create(controllerconfig.Spec{KubeAPIServerServingCAData: old, RootCAData: old})
	n.publishCA(old)
	n.must(n.StartAgent(n.ctx))
	n.awaitFile(cluster.KubeletCA, old)
	n.awaitConfigMap("following")
	n.awaitUnit(kubeletUnit, "loaded")
	stamps := n.stamp(bootstrapKubeconfig) + n.stamp(kubeletKubeconfig)

	both := append(append([]byte(nil), next...), old...)
	n.publishCA(both)
	n.awaitFile(bootstrapKubeconfig, machineConfigServers(both))
	n.awaitFile(kubeletKubeconfig, machineConfigServers(both))
	if stamps == n.stamp(bootstrapKubeconfig)+n.stamp(kubeletKubeconfig) {
		t.Error("the stamps cannot tell")
	}
	if got := n.run("stat", "-c", "%U:%G %a", bootstrapKubeconfig, kubeletKubeconfig); got != "root:root 644\nroot:root 600" {
		t.Errorf("owners and modes became %q", got)
	}
	n.await("the kubelet with the new CA", func() bool {
		return string(n.file("/run/kubelet.loaded")) == string(machineConfigServers(both))
	})
	n.awaitUnit(kubeletUnit, "loaded")
	if starts := strings.Count(string(n.file("/run/kubelet.log")), "start"); starts != 2 {
		t.Errorf("the kubelet was started %d times, want once by us", starts)
	}
	stamps = n.stamp(bootstrapKubeconfig) + n.stamp(kubeletKubeconfig)

	_, err := n.Plane.Kubectl(n.ctx, "delete", "configmap", "-n", controlplane.MachineConfigNamespace, "kubeconfig-data")
	n.must(err)
	n.awaitConfigMap("no object")
	n.run("systemctl", "restart", "node-cert-agent.service")
	n.awaitVersion(n.patch(kubeletCA(next)))
	n.wantFile(cluster.KubeletCA, next) // the others go on
	n.awaitConfigMap("no object")
	if now := n.stamp(bootstrapKubeconfig) + n.stamp(kubeletKubeconfig); now != stamps {
		t.Error("a kubeconfig was touched although nothing asks for anything else")
	}
	n.await("what is kept", func() bool { return len(n.status().Kept) >= 2 })

	// Drift is still repaired, without the API.
	n.must(n.Host.PutFile(bootstrapKubeconfig, host.File{Data: machineConfigServers([]byte("cut sho")), Mode: 0o600}))
	n.awaitFile(bootstrapKubeconfig, machineConfigServers(both))
	n.wantNowhere(nodeToken, bootstrapKubeconfig, kubeletKubeconfig, "/run/kubelet.loaded")
}

func TestAPullSecretArrivesOnARealHostForRootOnly(t *testing.T) {
	const password = "kennwort-77c2-5f0e"
	a := testpki.NewCA("a")
	n := startOpenShift(t, a)
	n.publishCA(a)
	one, two := controllerconfig.PullSecret("puller", password+"-one"), controllerconfig.PullSecret("puller", password+"-two")
	n.create(controllerconfig.Spec{KubeAPIServerServingCAData: a, RootCAData: a, InternalRegistryPullSecret: one})
	n.must(n.StartAgent(n.ctx))
	n.awaitFile(pullSecret, append(one, '\n'))
	if got := n.run("stat", "-c", "%U:%G %a", pullSecret); got != "root:root 600" {
		t.Errorf("owner and mode are %s", got)
	}
	n.patch(controllerconfig.Spec{InternalRegistryPullSecret: two})
	n.awaitFile(pullSecret, append(two, '\n'))
	n.awaitRecord(audit.Written, "NODECERT_ROW="+string(plan.InternalRegistryPullSecret))

	// What is no docker config, or none any more, changes nothing.
	n.awaitVersion(n.patch(controllerconfig.Spec{InternalRegistryPullSecret: []byte(`{"auths":{"x":{"auth":"` + password + `"}}}`)}))
	n.await("a refusal", func() bool { return len(n.status().Refused) == 1 })
	n.awaitVersion(n.patch(map[string]any{"internalRegistryPullSecret": nil}))
	n.wantFile(pullSecret, append(two, '\n'))
	n.run("chmod", "0644", pullSecret)
	n.await("mode 0600", func() bool { return n.run("stat", "-c", "%a", pullSecret) == "600" })

	blobs := "/var/lib/node-cert-agent/blobs"
	if got := n.run("sh", "-c", "stat -c '%U %a' "+blobs+"/* | sort -u"); got != "node-cert-agent 600" {
		t.Errorf("what is remembered is %s", got)
	}
	for _, secret := range []string{password, string(one[80:110]), string(two[80:110])} {
		n.wantNowhere(secret, pullSecret, blobs)
		if out := n.statusText() + n.run("node-cert-agent", "status") + n.run("node-cert-agent", "status", "-o", "json"); strings.Contains(out, secret) {
			t.Errorf("status shows a secret:\n%s", out)
		}
	}
}
