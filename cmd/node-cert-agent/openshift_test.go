// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/kubeconfigs"
)

const (
	bootstrapKubeconfig = "/etc/kubernetes/kubeconfig"
	kubeletKubeconfig   = "/var/lib/kubelet/kubeconfig"
	pullSecretFile      = "/etc/mco/internal-registry-pull-secret.json"

	// registryPassword and nodeToken are in files of the host and may be in nothing else.
	registryPassword = "kennwort-77c2"
	nodeToken        = "node-bootstrapper-41fe"
)

func pullSecret(user string) []byte {
	auth := base64.StdEncoding.EncodeToString([]byte(user + ":" + registryPassword))
	return []byte(`{"auths":{"image-registry.svc:5000":{"auth":"` + auth + `"}}}` + "\n")
}

func hostKubeconfig(ca []byte) string { return string(kubeconfigs.Node(ca, nodeToken)) }

// newOpenShift is a tree with the profile openshift and both kubeconfigs, with this CA.
func newOpenShift(t *testing.T, ca []byte) *tree {
	t.Helper()
	r := newTree(t)
	r.configure("profile: openshift\n")
	for _, dir := range []string{"/etc/mco", "/var/lib/kubelet",
		"/etc/kubernetes/static-pod-resources/configmaps/cloud-config"} {
		if err := os.MkdirAll(r.path(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for file, mode := range map[string]os.FileMode{bootstrapKubeconfig: 0o644, kubeletKubeconfig: 0o600} {
		save(t, r.path(file), hostKubeconfig(ca))
		if err := os.Chmod(r.path(file), mode); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func kubeconfigData(ca []byte) map[string]any { return map[string]any{"ca-bundle.crt": string(ca)} }

func (r *tree) wantMode(file string, want os.FileMode) {
	r.Helper()
	if info, err := os.Stat(r.path(file)); err != nil || info.Mode() != want {
		r.Errorf("%s: %v, %v; want %v", file, info.Mode(), err, want)
	}
}

func TestTheCAOfBothKubeconfigsIsRotatedAndEveryOtherByteKept(t *testing.T) {
	old, next := ca("old"), ca("next")
	r := newOpenShift(t, old)
	r.api.publish(map[string]any{"kubeAPIServerServingCAData": old})
	r.api.publishConfigMap(kubeconfigData(old))
	a := r.start()
	r.awaitFile(kubeletCA, old)
	r.awaitStatus("the ConfigMap", func(s report.Status) bool {
		return s.ConfigMap != nil && s.ConfigMap.State == "following"
	})
	before := r.file(bootstrapKubeconfig)

	both := append([]byte(strings.Clone(string(next))), old...)
	r.api.publishConfigMap(kubeconfigData(both))
	for _, file := range []string{bootstrapKubeconfig, kubeletKubeconfig} {
		r.awaitFile(file, []byte(hostKubeconfig(both)))
	}
	r.wantMode(bootstrapKubeconfig, 0o644)
	r.wantMode(kubeletKubeconfig, 0o600)
	if before != hostKubeconfig(old) {
		t.Error("an unchanged CA was written")
	}
	// The old one goes as well: today's writer never shrinks trust here.
	r.api.publishConfigMap(kubeconfigData(next))
	r.awaitFile(kubeletKubeconfig, []byte(hostKubeconfig(next)))
	if strings.Contains(a.log.String(), nodeToken) || strings.Contains(r.file("/run/node-cert-agent/status.json"),
		nodeToken) {
		t.Error("a token of a kubeconfig was shown")
	}
	if _, err := os.Stat(r.path("/var/lib/node-cert-agent/blobs")); err != nil {
		t.Fatal(err)
	}
	r.wantNowhere(nodeToken, bootstrapKubeconfig, kubeletKubeconfig)
}

// wantNowhere fails if a file other than those named holds the text.
func (r *tree) wantNowhere(text string, except ...string) {
	r.Helper()
	_ = filepath.WalkDir(r.root, func(p string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		for _, e := range except {
			if strings.HasPrefix(p, r.path(e)) {
				return nil
			}
		}
		if b, _ := os.ReadFile(p); strings.Contains(string(b), text) ||
			strings.Contains(string(b), base64.StdEncoding.EncodeToString([]byte(text))) {
			r.Errorf("%s holds a secret", p)
		}
		return nil
	})
}

func TestAPullSecretArrivesForItsOwnerOnlyAndIsShownNowhere(t *testing.T) {
	r := newOpenShift(t, ca("api"))
	r.api.publishConfigMap(kubeconfigData(ca("api")))
	r.api.publish(map[string]any{"kubeAPIServerServingCAData": ca("kubelet"),
		"internalRegistryPullSecret": pullSecret("one")})
	save(t, r.path(pullSecretFile), `{"auths":{"old":{"username":"`+registryPassword+`","password":"x"}}}`)
	if err := os.Chmod(r.path(pullSecretFile), 0o644); err != nil {
		t.Fatal(err)
	}
	o := r.command("diff", "--kubeconfig", r.kubeconfig)
	if o.code != exitPending || !strings.Contains(o.stdout, pullSecretFile) {
		t.Errorf("diff: %+v", o)
	}
	a := r.start()
	r.awaitFile(pullSecretFile, pullSecret("one"))
	r.wantMode(pullSecretFile, 0o600)
	r.api.publish(map[string]any{"internalRegistryPullSecret": pullSecret("two")})
	r.awaitFile(pullSecretFile, pullSecret("two"))
	// A bad one is refused, and the last good one stays.
	r.api.publish(map[string]any{"internalRegistryPullSecret": []byte(`{"auths":{"x":{"auth":"` + registryPassword +
		`"}}}`)})
	r.awaitStatus("a refusal", func(s report.Status) bool {
		return len(s.Refused) == 1 && s.Refused[0].Field == plan.InternalRegistryPullSecret
	})
	r.awaitFile(pullSecretFile, pullSecret("two"))
	said := a.log.String() + o.stdout + o.stderr + r.command("status").stdout + r.command("status", "-o", "json").stdout
	for _, secret := range []string{registryPassword, string(pullSecret("one")[40:70]), string(pullSecret("two")[40:70])} {
		if strings.Contains(said, secret) {
			t.Errorf("a secret was shown:\n%s", said)
		}
		r.wantNowhere(secret, pullSecretFile, "/var/lib/node-cert-agent/blobs")
	}
	blobs, err := os.ReadDir(r.path("/var/lib/node-cert-agent/blobs"))
	if err != nil || len(blobs) == 0 {
		t.Fatalf("%d blobs, %v", len(blobs), err)
	}
	for _, b := range blobs {
		r.wantMode("/var/lib/node-cert-agent/blobs/"+b.Name(), 0o600)
	}
}

func TestWithoutTheConfigMapItsFilesStayAndTheOthersGoOn(t *testing.T) {
	first, kubelet := ca("api"), ca("kubelet")
	r := newOpenShift(t, first)
	r.api.publish(map[string]any{"kubeAPIServerServingCAData": first})
	r.api.publishConfigMap(kubeconfigData(first))
	r.start()
	r.awaitFile(kubeletCA, first)
	r.awaitStatus("both sources", func(s report.Status) bool {
		return s.ConfigMap != nil && s.ConfigMap.State == "following"
	})

	r.api.publishConfigMap(nil)
	r.awaitStatus("its end", func(s report.Status) bool { return s.ConfigMap.State == "not found" })
	r.api.publish(map[string]any{"kubeAPIServerServingCAData": kubelet})
	r.awaitFile(kubeletCA, kubelet)
	if r.file(bootstrapKubeconfig) != hostKubeconfig(first) || r.file(kubeletKubeconfig) != hostKubeconfig(first) {
		t.Error("a kubeconfig was touched")
	}
	// What drifts is still repaired.
	save(t, r.path(bootstrapKubeconfig), hostKubeconfig([]byte("cut short")))
	r.awaitFile(bootstrapKubeconfig, []byte(hostKubeconfig(first)))
	r.api.publishConfigMap(map[string]any{"another": "x"})
	r.awaitStatus("a reason", func(s report.Status) bool {
		return len(s.Refused) == 2 && strings.Contains(s.Refused[0].Reason, "no key ca-bundle.crt")
	})
	if out := r.command("status").stdout; !strings.Contains(out, "ConfigMap:") {
		t.Errorf("status does not tell of the ConfigMap:\n%s", out)
	}
}

func TestEachSourceWorksWhileTheOtherIsForbidden(t *testing.T) {
	for resource, want := range map[string]struct{ object, configMap report.SourceState }{
		"configmaps":        {"following", "forbidden"},
		"controllerconfigs": {"forbidden", "following"},
	} {
		t.Run(resource, func(t *testing.T) {
			first, next := ca("first"), ca("next")
			r := newOpenShift(t, first)
			r.api.publish(map[string]any{"kubeAPIServerServingCAData": next})
			r.api.publishConfigMap(kubeconfigData(next))
			r.api.forbidden = resource
			r.start()
			r.awaitStatus("both states", func(s report.Status) bool {
				return s.State == want.object && s.ConfigMap != nil && s.ConfigMap.State == want.configMap
			})
			if resource == "configmaps" {
				r.awaitFile(kubeletCA, next)
				r.awaitFile(bootstrapKubeconfig, []byte(hostKubeconfig(first)))
				return
			}
			r.awaitFile(bootstrapKubeconfig, []byte(hostKubeconfig(next)))
			if r.file(kubeletCA) != "" {
				t.Error("a file was made of what could not be read")
			}
		})
	}
}

func TestAKubeconfigThatCannotBeEditedIsReportedAndLeftAlone(t *testing.T) {
	first, next := ca("first"), ca("next")
	r := newOpenShift(t, first)
	odd := strings.Replace(hostKubeconfig(first), "certificate-authority-data: ", "certificate-authority-data: &a ", 1)
	save(t, r.path(bootstrapKubeconfig), odd)
	if err := os.Remove(r.path(kubeletKubeconfig)); err != nil {
		t.Fatal(err)
	}
	r.api.publish(map[string]any{"kubeAPIServerServingCAData": next})
	r.api.publishConfigMap(kubeconfigData(next))
	a := r.start()
	r.awaitStatus("both reasons", func(s report.Status) bool {
		return len(s.Refused) == 2 && s.Refused[0].Reason == "line 6: an anchor or alias" &&
			s.Refused[1].Reason == "missing, and it is not ours to make"
	})
	r.awaitFile(kubeletCA, next) // the others go on
	if r.file(bootstrapKubeconfig) != odd || r.file(kubeletKubeconfig) != "" {
		t.Error("a kubeconfig was touched or made")
	}
	if strings.Contains(a.log.String(), nodeToken) {
		t.Error("the log shows a token")
	}
	// The kubelet makes its own, with whatever CA it knew.
	save(t, r.path(kubeletKubeconfig), hostKubeconfig(first))
	r.awaitFile(kubeletKubeconfig, []byte(hostKubeconfig(next)))
}

func TestAKubeconfigIsHelpedByHandWhenNoAPIServerCanBeTrusted(t *testing.T) {
	old, next := ca("old"), ca("next")
	r := newOpenShift(t, old)
	file := filepath.Join(t.TempDir(), "ca.pem")
	save(t, file, string(next))
	if o := r.command("diff", "-f", file, "--field", "kubeletKubeconfigCAData"); o.code != exitPending ||
		!strings.Contains(o.stdout, kubeletKubeconfig) {
		t.Errorf("diff: %+v", o)
	}
	if o := r.command("apply", "-f", file, "--field", "kubeletKubeconfigCAData", "--now"); o.code != 0 {
		t.Errorf("apply: %+v", o)
	}
	if got := r.file(kubeletKubeconfig); got != hostKubeconfig(next) {
		t.Errorf("now there is\n%s", got)
	}
	if got := r.file(bootstrapKubeconfig); got != hostKubeconfig(old) {
		t.Errorf("the other one became\n%s", got)
	}
	r.wantNowhere(nodeToken, bootstrapKubeconfig, kubeletKubeconfig)
}
