// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/node-cert-agent/node-cert-agent/renew/pair"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/staticpods"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// tree is a host in a directory.
type tree struct {
	*staticpods.Tree
	t    *testing.T
	host Host
}

func hostOf(t *testing.T, n *staticpods.Tree) *tree {
	return &tree{n, t, Host{Root: n.Root, Proc: n.Proc(), UID: uint32(os.Getuid())}}
}

func newTree(t *testing.T) *tree { return hostOf(t, staticpods.New(t)) }

func (n *tree) inspect() Inspection {
	n.t.Helper()
	seen, err := n.host.Inspect()
	if err != nil {
		n.t.Fatal(err)
	}
	return seen
}

func (n *tree) facts(name string) pair.Facts {
	n.t.Helper()
	seen := n.inspect()
	i := slices.IndexFunc(seen.Pairs, func(f pair.Facts) bool { return f.Name == name })
	if i < 0 {
		n.t.Fatalf("no pair %s in %+v", name, seen)
	}
	return seen.Pairs[i]
}

var apiserver = staticpods.APIServer

// controlPlane is a host whose API server is a static pod.
func controlPlane(t *testing.T) *tree { return hostOf(t, staticpods.ControlPlane(t)) }

func TestAPairOfAStaticPodIsSeenWithItsCA(t *testing.T) {
	f := controlPlane(t).facts("apiserver")
	if f.Problem != "" || f.Foreign != "" || f.Manager != "" || f.Leaf.Subject != "CN=kube-apiserver" {
		t.Errorf("facts %+v", f)
	}
	if f.CA == nil || !f.CA.KeyHere || f.CA.Path != "/etc/kubernetes/pki/ca.crt" {
		t.Errorf("CA %+v", f.CA)
	}
	if len(f.Users) != 1 || f.Users[0].PID != 20 || f.Users[0].Origin != "static pod" {
		t.Errorf("users %+v", f.Users)
	}
	booted, _ := bootTime()
	if want := booted.Add(42 * time.Second); f.Users[0].Started.Sub(want).Abs() > time.Second {
		t.Errorf("started at %v, want %v", f.Users[0].Started, want)
	}
	if time.Since(f.Changed).Abs() > time.Hour {
		t.Errorf("changed at %v", f.Changed)
	}
}

func TestAProcessThatNoFileOfRootsStartedIsPassedOver(t *testing.T) {
	forged := []string{"etcd", "--cert-file=/etc/secret.crt", "--key-file=/etc/secret.key"}
	for name, run := range map[string]func(*tree){
		"a pod":                             func(n *tree) { n.Runs(30, "/kubepods/besteffort/pod3/4", forged...) },
		"a pod with other flags":            func(n *tree) { n.Runs(30, "/kubepods/pod3/4", append(apiserver, "--etcd-certfile=/x")...) },
		"a pod that names a group":          func(n *tree) { n.Runs(30, "/kubepods/pod3/4/system.slice/etcd.service", forged...) },
		"a scope":                           func(n *tree) { n.Runs(30, "/kubepods.slice/a.scope/etcd.service", forged...) },
		"a unit that is not there":          func(n *tree) { n.Runs(30, "/system.slice/etcd.service", forged...) },
		"a unit with another program":       func(n *tree) { n.Runs(30, "/system.slice/kubelet.service", forged...) },
		"a manifest that others can write":  func(n *tree) { n.others(staticpods.Manifest(forged...)); n.Runs(30, "/kubepods/pod3/4", forged...) },
		"a manifest that is a link to such": func(n *tree) { n.link(staticpods.Manifest(forged...)); n.Runs(30, "/kubepods/pod3/4", forged...) },
	} {
		n := controlPlane(t)
		n.Pair("etc/secret", n.CA.Client("secret"))
		run(n)
		seen := n.inspect()
		if len(seen.Notes) != 1 || !strings.Contains(seen.Notes[0], "pid 30") {
			t.Errorf("%s: notes %q", name, seen.Notes)
		}
		if slices.ContainsFunc(seen.Pairs, func(f pair.Facts) bool { return f.Name != "apiserver" }) {
			t.Errorf("%s: pairs %+v", name, seen.Pairs)
		}
	}
}

func (n *tree) others(text string) {
	if err := os.Chmod(n.Write("etc/kubernetes/manifests/etcd.yaml", text), 0o666); err != nil {
		n.t.Fatal(err)
	}
}

func (n *tree) link(text string) {
	file := n.Write("tmp/etcd.yaml", text)
	if err := os.Symlink(file, filepath.Join(n.host.Root, "etc/kubernetes/manifests/etcd.yaml")); err != nil {
		n.t.Fatal(err)
	}
}

func TestEtcdadmsUnitNamesItsEnvironment(t *testing.T) {
	n := newTree(t)
	n.Write("etc/systemd/system/etcd.service", "[Service]\nEnvironmentFile=/etc/etcd/other.env\nExecStart=/bin/false\n")
	n.Write("etc/systemd/system/etcd.service.d/10-etcdadm.conf",
		"[Service]\nEnvironmentFile=-/etc/etcd/etcd.env\nExecStart=\nExecStart=-/opt/bin/etcd \\\n  --x\n")
	n.Write("etc/etcd/etcd.env", "ETCD_CERT_FILE=/etc/etcd/pki/server.crt\nETCD_KEY_FILE=/etc/etcd/pki/server.key\n"+
		"ETCD_TRUSTED_CA_FILE=/etc/etcd/pki/ca.crt\n")
	n.Runs(9, "/system.slice/etcd.service", "/opt/bin/etcd")
	n.Pair("etc/etcd/pki/server", n.CA.Client("m1"))
	n.Pair("etc/etcd/pki/etcdctl-etcd-client", n.CA.Client("m1-etcdctl", "system:masters"))
	n.Write("etc/etcd/pki/ca.crt", string(n.CA.PEM()))
	n.Write("etc/etcd/pki/ca.key", string(n.CA.KeyPEM()))
	seen := n.inspect()
	if len(seen.Pairs) != 2 || seen.Pairs[0].Name != "etcdctl-etcd-client" || seen.Pairs[1].Name != "etcd-server" {
		t.Fatalf("pairs %+v", seen.Pairs)
	}
	for _, f := range seen.Pairs {
		if f.CA == nil || !f.CA.KeyHere || f.Problem != "" {
			t.Errorf("facts %+v", f)
		}
	}
}

func withUser(p testpki.Pair) string {
	enc := base64.StdEncoding.EncodeToString
	return "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts:\n- name: a\n  context: {cluster: c, user: u}\n" +
		"clusters:\n- name: c\n  cluster: {server: https://127.0.0.1:6443}\nusers:\n- name: u\n  user:\n" +
		"    client-certificate-data: " + enc(p.Cert) + "\n    client-key-data: " + enc(p.Key) + "\n"
}

func TestAKubeconfigIsAPairToo(t *testing.T) {
	n := controlPlane(t)
	argv := []string{"kube-scheduler", "--kubeconfig=/etc/kubernetes/scheduler.conf"}
	n.Write("etc/kubernetes/manifests/kube-scheduler.yaml", staticpods.Manifest(argv...))
	n.Runs(21, "/kubepods/pod5", argv...)
	n.Write("etc/kubernetes/scheduler.conf", withUser(n.CA.Client("system:kube-scheduler")))
	n.Write("etc/kubernetes/admin.conf", withUser(n.CA.Client("kubernetes-admin")))
	n.Write("etc/kubernetes/notes.conf", "no kubeconfig\n")
	for name, subject := range map[string]string{"scheduler.conf": "CN=system:kube-scheduler", "admin.conf": "CN=kubernetes-admin"} {
		if f := n.facts(name); f.Leaf.Subject != subject || f.CA == nil || !f.Kubeconfig || f.Problem != "" {
			t.Errorf("%s: %+v", name, f)
		}
	}
	if seen := n.inspect(); len(seen.Pairs) != 3 {
		t.Errorf("pairs %+v", seen.Pairs)
	}
}

func TestAKubeletsCertificateIsItsOwnAffair(t *testing.T) {
	n := newTree(t)
	n.Kubelet(nil)
	n.Runs(1, "/system.slice/kubelet.service", "/usr/bin/kubelet", "--kubeconfig=/etc/kubernetes/kubelet.conf")
	p := n.CA.Client("system:node:a", "system:nodes")
	n.Write("var/lib/kubelet/pki/kubelet-client-2026.pem", string(p.Cert)+string(p.Key))
	if err := os.Symlink("kubelet-client-2026.pem", filepath.Join(n.host.Root, "var/lib/kubelet/pki/current.pem")); err != nil {
		t.Fatal(err)
	}
	config := withUser(p)
	config = config[:strings.Index(config, "    client-certificate-data")] +
		"    client-certificate: /var/lib/kubelet/pki/current.pem\n    client-key: /var/lib/kubelet/pki/current.pem\n"
	n.Write("etc/kubernetes/kubelet.conf", config)
	f := n.facts("kubelet.conf")
	if f.Manager != "kubelet" || f.Problem != "" || f.Leaf.Subject == "" || f.Cert != "/var/lib/kubelet/pki/current.pem" {
		t.Errorf("facts %+v", f)
	}
}

func TestWhatWeWouldNotTouchIsSaid(t *testing.T) {
	for name, c := range map[string]struct {
		change           func(n *tree, cert, key string) error
		problem, foreign string
	}{
		"no certificate": {func(_ *tree, cert, _ string) error { return os.Remove(cert) }, "apiserver.crt does not exist", ""},
		"no key":         {func(_ *tree, _, key string) error { return os.Remove(key) }, "apiserver.key does not exist", ""},
		"a key of another": {func(n *tree, _, _ string) error {
			n.Write("etc/kubernetes/pki/apiserver.key", string(n.CA.Client("b").Key))
			return nil
		}, "do not belong together", ""},
		"a link": {func(_ *tree, cert, _ string) error {
			if err := os.Rename(cert, cert+".real"); err != nil {
				return err
			}
			return os.Symlink(cert+".real", cert)
		}, "is a symbolic link", ""},
		"a pipe":             {func(_ *tree, cert, _ string) error { return pipe(cert) }, "not a regular file", ""},
		"too large":          {func(_ *tree, cert, _ string) error { return os.Truncate(cert, maxFile+1) }, "more than", ""},
		"writable by others": {func(_ *tree, _, key string) error { return os.Chmod(key, 0o620) }, "", "mode 0620"},
	} {
		n := controlPlane(t)
		base := filepath.Join(n.host.Root, "etc/kubernetes/pki/apiserver")
		if err := c.change(n, base+".crt", base+".key"); err != nil {
			t.Fatal(err)
		}
		f := n.facts("apiserver")
		if !strings.Contains(f.Problem, c.problem) || (c.problem == "") != (f.Problem == "") ||
			!strings.Contains(f.Foreign, c.foreign) || c.foreign != "" && f.Foreign == "" {
			t.Errorf("%s: problem %q, foreign %q", name, f.Problem, f.Foreign)
		}
	}
}

func TestStartTimesAndGroupsAreReadWhateverAProgramIsCalled(t *testing.T) {
	if at, ok := startTime([]byte("1 ((a) S b) R 1 2 3"), time.Unix(0, 0)); ok {
		t.Errorf("a line without the field is %v", at)
	}
	for line, want := range map[string]string{
		"0::/system.slice/etcd.service\n":                                "etcd.service",
		"0::/system.slice/system-etcd.slice/etcd@1.service/payload\n":    "etcd@1.service",
		"3:cpu:/other.service\n1:name=systemd:/system.slice/a.service\n": "a.service",
		"0::/\n":                               "",
		"0::/kubepods/a.service\n":             "",
		"0::/user.slice/a.scope/a.service":     "",
		"3:cpu,memory:/system.slice/a.service": "",
		"nonsense":                             "",
	} {
		if got := unitOf(line); got != want {
			t.Errorf("%q is %q, want %q", line, got, want)
		}
	}
}

// pipe puts a named pipe in the place of a file.
func pipe(file string) error {
	if err := os.Remove(file); err != nil {
		return err
	}
	return unix.Mkfifo(file, 0o600)
}

// BenchmarkInspect looks at a host as kubeadm makes it: eleven pairs with RSA keys in four static pods, among 200
// processes.
func BenchmarkInspect(b *testing.B) {
	const pki = "/etc/kubernetes/pki/"
	n := staticpods.New(b)
	n.CA = testpki.New("kubernetes", testpki.RSA)
	pods := map[string][]string{
		"kube-apiserver": {"--tls-cert-file=" + pki + "apiserver.crt", "--tls-private-key-file=" + pki + "apiserver.key",
			"--client-ca-file=" + pki + "ca.crt", "--etcd-cafile=" + pki + "ca.crt",
			"--etcd-certfile=" + pki + "apiserver-etcd-client.crt", "--etcd-keyfile=" + pki + "apiserver-etcd-client.key",
			"--kubelet-client-certificate=" + pki + "apiserver-kubelet-client.crt",
			"--kubelet-client-key=" + pki + "apiserver-kubelet-client.key",
			"--proxy-client-cert-file=" + pki + "front-proxy-client.crt", "--proxy-client-key-file=" + pki + "front-proxy-client.key"},
		"etcd": {"--cert-file=" + pki + "etcd/server.crt", "--key-file=" + pki + "etcd/server.key",
			"--trusted-ca-file=" + pki + "ca.crt", "--peer-cert-file=" + pki + "etcd/peer.crt",
			"--peer-key-file=" + pki + "etcd/peer.key"},
		"kube-controller-manager": {"--kubeconfig=/etc/kubernetes/controller-manager.conf"},
		"kube-scheduler":          {"--kubeconfig=/etc/kubernetes/scheduler.conf"},
	}
	manifests, pid := map[string]string{}, 200
	for program, flags := range pods {
		argv := append([]string{program}, flags...)
		manifests[program+".yaml"] = staticpods.Manifest(argv...)
		n.Runs(pid, "/kubepods/burstable/pod1/2", argv...)
		pid++
	}
	n.Kubelet(manifests)
	for pid := range 200 {
		n.Runs(1000+pid, "/system.slice/x.service", "/usr/bin/x")
	}
	for _, name := range []string{"apiserver", "apiserver-etcd-client", "apiserver-kubelet-client", "front-proxy-client",
		"etcd/server", "etcd/peer", "etcd/healthcheck-client"} {
		n.Pair(pki+name, n.CA.Client(name))
	}
	for _, name := range []string{"controller-manager", "scheduler", "admin", "super-admin"} {
		n.Write("etc/kubernetes/"+name+".conf", withUser(n.CA.Client(name)))
	}
	n.Write(pki+"ca.crt", string(n.CA.PEM()))
	n.Write(pki+"ca.key", string(n.CA.KeyPEM()))
	h := Host{Root: n.Root, Proc: n.Proc(), UID: uint32(os.Getuid())}
	for b.Loop() {
		if seen, err := h.Inspect(); err != nil || len(seen.Pairs) != 11 || seen.Pairs[0].CA == nil {
			b.Fatalf("%+v, %v", seen, err)
		}
	}
}
