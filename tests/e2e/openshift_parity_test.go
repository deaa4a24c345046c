// SPDX-License-Identifier: Apache-2.0

//go:build real

package e2e

import (
	"bytes"
	"encoding/json"
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

// The tests in this file ask of the profile openshift what OpenShift's own end-to-end tests ask of the
// machine config daemon, and say where the answer differs on purpose. Sources:
// machine-config-operator test/e2e-1of2/mcd_test.go (TestMCDRotatesCerts,
// TestInternalImageRegistryPullSecret) and test/e2e-2of2/mco_test.go (TestImageRegistryMergedCM).

// rotateServiceCA makes the machine config daemon look at the kubeconfigs again, whatever it remembers.
const rotateServiceCA = "machineconfiguration.openshift.io/service-ca-rotate"

// starts is how often the kubelet was started.
func (n *node) starts() int { return strings.Count(string(n.File("/run/kubelet.log")), "start") }

// TestMCDRotatesCerts: after a rotation the file on the node is the bundle in the cluster, to the byte.
func TestOnOpenShiftTheKubeletsCAIsTheClustersToTheByte(t *testing.T) {
	old := testpki.NewCA("old")
	n := startOpenShift(t, old)
	n.create(controllerconfig.Spec{KubeAPIServerServingCAData: old, RootCAData: old})
	n.publishCA(old)
	n.Must(n.StartAgent(n.Ctx))
	n.AwaitFile(cluster.KubeletCA, old)
	n.awaitUnit(kubeletUnit, "up to date")
	starts := n.starts()

	grown := slices.Concat(testpki.NewCA("next"), old)
	for sentence, published := range map[string][]byte{
		"a bundle that grew":         grown,
		"a bundle with comments":     slices.Concat([]byte("# kube-apiserver-to-kubelet-signer\n"), grown),
		"one CA of another signer":   testpki.NewCA("signer"),
		"CRLF, as somebody typed it": bytes.ReplaceAll(grown, []byte("\n"), []byte("\r\n")),
	} {
		n.awaitVersion(n.patch(kubeletCA(published)))
		if !bytes.Equal(n.File(cluster.KubeletCA), published) {
			t.Errorf("%s: the file is not what was published", sentence)
		}
	}
	last := n.File(cluster.KubeletCA)
	n.awaitVersion(n.patch(kubeletCA([]byte("-----BEGIN CERTIFICATE-----\nKey: value\n\nMII=\n-----END CERTIFICATE-----\n"))))
	n.wantFile(cluster.KubeletCA, last) // the daemon would write it, and the kubelet not start again
	if now := n.starts(); now != starts {
		t.Errorf("the kubelet was started %d times for its client CA, which it reads by itself", now-starts)
	}
	if out := n.Run("stat", "-c", "%U %G %a", cluster.KubeletCA); out != "root root 644" {
		t.Errorf("owner and mode are %s", out)
	}
}

// logins is a docker config with a login for each host.
func logins(hosts ...string) []byte {
	auths := map[string]any{}
	for _, h := range hosts {
		auths[h] = map[string]string{"username": "user", "password": "secret", "email": "user@hostname.com",
			"auth": "dXNlcjpzZWNyZXQ="}
	}
	b, err := json.Marshal(map[string]any{"auths": auths})
	if err != nil {
		panic(err)
	}
	return b
}

// TestInternalImageRegistryPullSecret: nodes get each host name that is added to the secret and lose each
// that is taken away.
func TestOnOpenShiftNodesGetAndLoseTheLoginsOfThePullSecret(t *testing.T) {
	a := testpki.NewCA("a")
	n := startOpenShift(t, a)
	n.publishCA(a)
	hosts := []string{"registry1.hostname.com", "registry2.hostname.com", "registry3.hostname.com"}
	n.create(controllerconfig.Spec{KubeAPIServerServingCAData: a, RootCAData: a,
		InternalRegistryPullSecret: logins("internal.svc:5000")})
	n.Must(n.StartAgent(n.Ctx))
	n.AwaitFile(pullSecret, append(logins("internal.svc:5000"), '\n'))

	publish := func(names ...string) {
		t.Helper()
		secret := logins(append([]string{"internal.svc:5000"}, names...)...)
		n.awaitVersion(n.patch(controllerconfig.Spec{InternalRegistryPullSecret: secret}))
		for _, h := range hosts {
			if got := bytes.Contains(n.File(pullSecret), []byte(h)); got != slices.Contains(names, h) {
				t.Errorf("with logins for %q the node has one for %s: %v", names, h, got)
			}
		}
		if got := n.Run("stat", "-c", "%U %G %a", pullSecret); got != "root root 600" {
			t.Errorf("owner and mode are %s", got)
		}
	}
	for i := range hosts {
		publish(hosts[:i+1]...)
	}
	last := n.File(pullSecret)
	for sentence, secret := range map[string][]byte{
		"a kubernetes.io/dockercfg, which has no auths": bytes.TrimSuffix(bytes.TrimPrefix(logins(hosts[0]),
			[]byte(`{"auths":`)), []byte("}")),
		"half of one":                 logins(hosts...)[:100],
		"what the daemon would write": []byte("foo"),
	} {
		n.awaitVersion(n.patch(controllerconfig.Spec{InternalRegistryPullSecret: secret}))
		refused := n.Status().Refused
		if len(refused) != 1 || refused[0].Field != plan.InternalRegistryPullSecret ||
			!bytes.Equal(n.File(pullSecret), last) {
			t.Errorf("%s: refused is %v, and the file is the last good one: %v", sentence, refused,
				bytes.Equal(n.File(pullSecret), last))
		}
	}
	for i := range hosts {
		publish(hosts[i+1:]...)
	}
}

// TestImageRegistryMergedCM: a registry that is added to the lists appears on nodes, and one that is taken
// out of them goes. To take it away is the daemon's, which runs beside us; its test publishes a registry
// "foo" whose CA is "bar", which we do not write.
func TestOnOpenShiftRegistriesComeAndGo(t *testing.T) {
	a, b := testpki.NewCA("a"), testpki.NewCA("b")
	o := cluster.Options{API: controllerconfig.OpenShift, Config: openShift, Host: host.Options{Files: openShiftFiles(a)}}
	o.Host.Files["/usr/local/bin/rivals"] = installRivals(t)
	n := start(t, o)
	n.prepareOpenShift()
	n.publishCA(a)
	entry := func(file string, data []byte) controllerconfig.Registry {
		return controllerconfig.Registry{File: file, Data: data}
	}
	s := controllerconfig.Spec{KubeAPIServerServingCAData: a, CloudProviderCAData: a, RootCAData: a,
		ImageRegistryBundleData:     []controllerconfig.Registry{entry("both.example", a), entry("internal.svc..5000", a)},
		ImageRegistryBundleUserData: []controllerconfig.Registry{entry("both.example", b)}}
	n.create(s)
	n.Must(n.StartAgent(n.Ctx))
	n.AwaitFile(certsD("internal.svc:5000"), a)
	n.AwaitFile(certsD("both.example"), b) // the user's word

	with := s
	with.ImageRegistryBundleUserData = append(slices.Clone(s.ImageRegistryBundleUserData), entry("new.example", a),
		entry("foo", []byte("bar")))
	n.awaitVersion(n.patch(with))
	n.wantFile(certsD("new.example"), a)
	n.wantFile(certsD("both.example"), b)
	if n.Run("sh", "-c", "ls -d /etc/docker/certs.d/foo || true") != "" {
		t.Error("a directory was made for a registry whose CA is no certificate")
	}
	if r := n.Status().Refused; len(r) != 1 || r[0].Name != "foo" {
		t.Errorf("refused is %v", r)
	}

	n.awaitVersion(n.patch(s))
	n.publishToRivals(s)
	n.Run("/usr/local/bin/rivals", "machine-config-daemon", spec, "1")
	n.Await("the registry's end", func() bool { return len(n.File(certsD("new.example"))) == 0 })
	v, err := n.Store.Annotate(n.Ctx, "example.org/version", "1")
	n.Must(err)
	n.awaitVersion(v)
	if len(n.File(certsD("new.example"))) > 0 || n.Records(audit.Conflict) > 0 {
		t.Error("what the daemon took away came back, or was fought for")
	}
	n.wantFile(certsD("both.example"), b)
}

// The CA of the API server is merged into both kubeconfigs, and pruned from them: the daemon never takes one
// away. Its annotation for a rotation by hand leads to nothing here: we look whenever bytes differ.
func TestOnOpenShiftTheKubeconfigsFollowAndTheRotationAnnotationAddsNothing(t *testing.T) {
	old := testpki.NewCA("old")
	n := startOpenShift(t, old)
	api := n.Plane.CA().PEM()
	n.create(controllerconfig.Spec{KubeAPIServerServingCAData: old, RootCAData: old})
	n.publishCA(old)
	n.Must(n.StartAgent(n.Ctx))
	n.AwaitFile(cluster.KubeletCA, old)
	for _, bundle := range [][]byte{slices.Concat(old, api), slices.Concat(api, old), api} {
		n.publishCA(bundle)
		for _, file := range []string{bootstrapKubeconfig, kubeletKubeconfig} {
			n.AwaitFile(file, machineConfigServers(bundle))
		}
	}
	n.Await("the kubelet with the last CA", func() bool {
		return bytes.Equal(n.File("/run/kubelet.loaded"), machineConfigServers(api))
	})
	n.awaitUnit(kubeletUnit, "up to date")

	all := func() string {
		return n.stamp(bootstrapKubeconfig) + n.stamp(kubeletKubeconfig) + n.stamp(cluster.KubeletCA)
	}
	stamps, starts, writes := all(), n.starts(), n.Status().Writes
	for i, value := range []string{"true", "false", "true"} {
		v, err := n.Store.Annotate(n.Ctx, rotateServiceCA, value)
		n.Must(err)
		n.awaitVersion(v)
		if all() != stamps || n.starts() != starts || n.Status().Writes != writes {
			t.Errorf("annotation %d did something: starts %d, writes %d", i+1, n.starts()-starts, n.Status().Writes-writes)
		}
	}
	// What differs is put right without it.
	n.Must(n.Host.PutFile(kubeletKubeconfig, host.File{Data: machineConfigServers(old), Mode: 0o600}))
	n.AwaitFile(kubeletKubeconfig, machineConfigServers(api))
	if got := n.Run("stat", "-c", "%U %G %a", kubeletKubeconfig); got != "root root 600" {
		t.Errorf("owner and mode are %s", got)
	}
}
