// SPDX-License-Identifier: Apache-2.0

// Package staticpods makes a control-plane host in a directory, as far as files and a proc(5) of its own show it:
// a kubelet, manifests of static pods, processes, and the pairs that their flags name.
//
// It owns that directory, which goes with the test. Nothing runs.
package staticpods

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// Tree is a host in the directory Root, with a CA.
type Tree struct {
	T    testing.TB
	Root string
	CA   *testpki.Authority
}

// New is a host on which nothing runs.
func New(t testing.TB) *Tree {
	return &Tree{t, t.TempDir(), testpki.New("kubernetes", testpki.ECDSA)}
}

// Proc is the directory that is the host's /proc.
func (n *Tree) Proc() string { return filepath.Join(n.Root, "proc") }

// Write makes a file of mode 0600 and the directories above it.
func (n *Tree) Write(name, text string) string {
	n.T.Helper()
	file := filepath.Join(n.Root, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		n.T.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		n.T.Fatal(err)
	}
	return file
}

// Runs starts a process, as far as proc(5) shows it.
func (n *Tree) Runs(pid int, cgroup string, argv ...string) {
	dir := fmt.Sprintf("proc/%d/", pid)
	n.Write(dir+"cmdline", strings.Join(argv, "\x00")+"\x00")
	n.Write(dir+"cgroup", "0::"+cgroup+"\n")
	n.Write(dir+"stat", fmt.Sprintf("%d (a) b (c)) S 1%s 4200 0\n", pid, strings.Repeat(" 0", 17)))
}

// Kubelet runs as kubeadm sets it up, with the given manifests.
func (n *Tree) Kubelet(manifests map[string]string) {
	n.Write("usr/lib/systemd/system/kubelet.service", "[Unit]\nExecStart=/no\n[Service]\nExecStart=/usr/bin/kubelet\n")
	n.Write("var/lib/kubelet/config.yaml", "staticPodPath: /etc/kubernetes/manifests\n")
	n.Runs(1, "/system.slice/kubelet.service", "/usr/bin/kubelet", "--config=/var/lib/kubelet/config.yaml")
	for name, text := range manifests {
		n.Write("etc/kubernetes/manifests/"+name, text)
	}
}

// Manifest is that of a static pod with one container.
func Manifest(argv ...string) string {
	return "spec:\n  containers:\n  - command: [" + strings.Join(argv[:1], ", ") + "]\n    args: [" +
		strings.Join(argv[1:], ", ") + "]\n"
}

// Pair writes NAME.crt and NAME.key.
func (n *Tree) Pair(name string, p testpki.Pair) {
	n.Write(name+".crt", string(p.Cert))
	n.Write(name+".key", string(p.Key))
}

// APIServer is the command line of ControlPlane's.
var APIServer = []string{"kube-apiserver", "--tls-cert-file=/etc/kubernetes/pki/apiserver.crt",
	"--tls-private-key-file=/etc/kubernetes/pki/apiserver.key", "--client-ca-file=/etc/kubernetes/pki/ca.crt"}

// ControlPlane is a host whose API server is a static pod, with its pair and its CA.
func ControlPlane(t testing.TB) *Tree {
	n := New(t)
	n.Kubelet(map[string]string{"kube-apiserver.yaml": Manifest(APIServer...), ".hidden.yaml": "{", "broken.yaml": "{"})
	n.Runs(20, "/kubepods/burstable/pod1/2", APIServer...)
	n.Pair("etc/kubernetes/pki/apiserver", n.CA.Client("kube-apiserver"))
	n.Write("etc/kubernetes/pki/ca.crt", string(n.CA.PEM()))
	n.Write("etc/kubernetes/pki/ca.key", string(n.CA.KeyPEM()))
	return n
}
