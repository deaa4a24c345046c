// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/agent/report"
)

const (
	kubeadmCA         = "/etc/kubernetes/pki/ca.crt"
	kubeadmKubeconfig = "/etc/kubernetes/kubelet.conf"
)

// newKubeadm is a tree with the profile kubeadm and the files of a worker, with this CA.
func newKubeadm(t *testing.T, ca []byte) *tree {
	t.Helper()
	r := newTree(t)
	r.configure("profile: kubeadm\n")
	if err := os.MkdirAll(r.path("/etc/kubernetes/pki"), 0o755); err != nil {
		t.Fatal(err)
	}
	save(t, r.path(kubeadmCA), string(ca))
	save(t, r.path(kubeadmKubeconfig), hostKubeconfig(ca))
	return r
}

func TestAWorkerOfKubeadmFollowsInTheFilesThatItsKubeletReads(t *testing.T) {
	old, next := ca("old"), ca("next")
	r := newKubeadm(t, old)
	both := append([]byte(strings.Clone(string(old))), next...)
	r.api.publish(map[string]any{"kubeAPIServerServingCAData": both, "rootCAData": both})
	r.api.publishConfigMap(map[string]any{"ca.crt": string(both)})
	r.start()
	r.awaitFile(kubeadmCA, both)
	r.awaitFile(kubeadmKubeconfig, []byte(hostKubeconfig(both)))
	r.awaitFile("/etc/kubernetes/ca.crt", both)
	r.awaitStatus("no refusal", func(s report.Status) bool { return len(s.Refused) == 0 && s.Error == "" })
}

func TestOnAControlPlaneOfKubeadmTheCABesideItsKeyIsNeverWritten(t *testing.T) {
	old, next := ca("old"), ca("next")
	r := newKubeadm(t, old)
	save(t, r.path("/etc/kubernetes/pki/ca.key"), "key")
	r.api.publish(map[string]any{"kubeAPIServerServingCAData": next, "rootCAData": next})
	r.api.publishConfigMap(map[string]any{"ca.crt": string(next)})
	r.start()
	r.awaitStatus("a reason", func(s report.Status) bool {
		return len(s.Refused) == 1 && s.Refused[0].Reason == "beside a private key, ca.key"
	})
	r.awaitFile("/etc/kubernetes/ca.crt", next)
	r.awaitFile(kubeadmKubeconfig, []byte(hostKubeconfig(next)))
	if r.file(kubeadmCA) != string(old) {
		t.Error("it was written")
	}
	if o := r.check(); !strings.Contains(o.stdout, "pki/ca.crt is not written: beside a private key, ca.key\n      fix: "+
		"on a control plane set `files: {kubeAPIServerServingCAData: {path: /etc/kubernetes/kubelet-ca.crt}}`") {
		t.Errorf("check says\n%s", o.stdout)
	}
}
