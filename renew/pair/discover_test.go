// SPDX-License-Identifier: Apache-2.0

package pair

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// kubeadmHost is what kubeadm starts on a control-plane host with its own etcd, as far as it names files.
func kubeadmHost() []Component {
	component := func(p Program, pid int, line string) Component {
		return Component{Program: p, PID: pid, Started: time.Unix(int64(pid), 0), Origin: "static pod",
			Flags: Flags(strings.Fields(line), nil)}
	}
	return []Component{
		component(Kubelet, 1, "/usr/bin/kubelet --kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml"),
		component(Etcd, 2, `etcd --cert-file=/etc/kubernetes/pki/etcd/server.crt --key-file=/etc/kubernetes/pki/etcd/server.key
			--trusted-ca-file=/etc/kubernetes/pki/etcd/ca.crt --peer-cert-file=/etc/kubernetes/pki/etcd/peer.crt
			--peer-key-file=/etc/kubernetes/pki/etcd/peer.key --peer-trusted-ca-file=/etc/kubernetes/pki/etcd/ca.crt
			--listen-client-urls=https://127.0.0.1:2379,https://192.0.2.1:2379 --listen-peer-urls=https://192.0.2.1:2380
			--listen-metrics-urls=http://127.0.0.1:2381`),
		component(APIServer, 3, `kube-apiserver --advertise-address=192.0.2.1 --client-ca-file=/etc/kubernetes/pki/ca.crt
			--etcd-cafile=/etc/kubernetes/pki/etcd/ca.crt --etcd-certfile=/etc/kubernetes/pki/apiserver-etcd-client.crt
			--etcd-keyfile=/etc/kubernetes/pki/apiserver-etcd-client.key
			--kubelet-client-certificate=/etc/kubernetes/pki/apiserver-kubelet-client.crt
			--kubelet-client-key=/etc/kubernetes/pki/apiserver-kubelet-client.key
			--proxy-client-cert-file=/etc/kubernetes/pki/front-proxy-client.crt
			--proxy-client-key-file=/etc/kubernetes/pki/front-proxy-client.key
			--requestheader-client-ca-file=/etc/kubernetes/pki/front-proxy-ca.crt
			--tls-cert-file=/etc/kubernetes/pki/apiserver.crt --tls-private-key-file=/etc/kubernetes/pki/apiserver.key`),
		component(ControllerManager, 4, `kube-controller-manager --kubeconfig=/etc/kubernetes/controller-manager.conf
			--cluster-signing-cert-file=/etc/kubernetes/pki/ca.crt --cluster-signing-key-file=/etc/kubernetes/pki/ca.key`),
		component(Scheduler, 5, "kube-scheduler --kubeconfig=/etc/kubernetes/scheduler.conf"),
	}
}

func names(pairs []Pair) (all []string) {
	for _, p := range pairs {
		all = append(all, p.Name)
	}
	return all
}

func byName(t *testing.T, pairs []Pair, name string) Pair {
	t.Helper()
	i := slices.IndexFunc(pairs, func(p Pair) bool { return p.Name == name })
	if i < 0 {
		t.Fatalf("no pair %s among %q", name, names(pairs))
	}
	return pairs[i]
}

func TestThePairsOfAKubeadmHostAreFoundInItsFlags(t *testing.T) {
	found := Discover(kubeadmHost())
	want := []string{"apiserver", "apiserver-kubelet-client", "front-proxy-client", "apiserver-etcd-client", "etcd-server",
		"etcd-peer", "controller-manager.conf", "scheduler.conf", "kubelet.conf"}
	if got := names(found.Pairs); !slices.Equal(got, want) {
		t.Errorf("pairs %q, want %q", got, want)
	}
	if p := byName(t, found.Pairs, "apiserver"); !slices.Equal(p.Addresses, []string{"192.0.2.1:6443"}) || p.Role != Server {
		t.Errorf("the API server is %+v", p)
	}
	server := byName(t, found.Pairs, "etcd-server")
	if !slices.Equal(server.Addresses, []string{"127.0.0.1:2379", "192.0.2.1:2379"}) {
		t.Errorf("etcd serves at %q", server.Addresses)
	}
	if p := byName(t, found.Pairs, "etcd-peer"); p.Role != Peer || !slices.Equal(p.Addresses, []string{"192.0.2.1:2380"}) {
		t.Errorf("the peer pair is %+v", p)
	}
	if p := byName(t, found.Pairs, "scheduler.conf"); !p.Kubeconfig || !p.AtStart || p.Key != p.Cert {
		t.Errorf("the scheduler's is %+v", p)
	}
	if p := byName(t, found.Pairs, "kubelet.conf"); p.AtStart {
		t.Errorf("a kubelet reads its certificate again and again: %+v", p)
	}
	if want := (Authority{"/etc/kubernetes/pki/etcd/ca.crt", "/etc/kubernetes/pki/etcd/ca.key"}); !slices.Contains(
		found.Authorities, want) {
		t.Errorf("authorities %+v", found.Authorities)
	}
	if want := []Directory{{Path: "/etc/kubernetes/pki"}, {Path: "/etc/kubernetes/pki/etcd"}, {Path: "/etc/kubernetes"}}; !slices.
		Equal(found.Directories, want) {
		t.Errorf("directories %+v", found.Directories)
	}
	if len(found.Notes) > 0 {
		t.Errorf("notes %q", found.Notes)
	}
}

func TestWhatLiesBesideIsFoundOnce(t *testing.T) {
	found := Discover(kubeadmHost())
	got := found.Beside("/etc/kubernetes/pki/etcd", []string{"ca.crt", "ca.key", "server.crt", "server.key",
		"healthcheck-client.crt", "healthcheck-client.key", "notes.crt", ".staged.crt", ".staged.key"})
	if want := []string{"etcd-healthcheck-client"}; !slices.Equal(names(got), want) {
		t.Errorf("pairs %q, want %q", names(got), want)
	}
	got = found.Beside("/etc/kubernetes", []string{"admin.conf", "scheduler.conf", "super-admin.conf", "manifests"})
	if want := []string{"admin.conf", "super-admin.conf"}; !slices.Equal(names(got), want) {
		t.Errorf("pairs %q, want %q", names(got), want)
	}
}

func TestEtcdadmsFilesAreNamedByTheEnvironmentOfTheUnit(t *testing.T) {
	env := []string{"# comment", "ETCD_CERT_FILE=/etc/etcd/pki/server.crt", `ETCD_KEY_FILE="/etc/etcd/pki/server.key"`,
		"ETCD_LISTEN_CLIENT_URLS=https://0.0.0.0:2379", "ETCD_TRUSTED_CA_FILE=/etc/etcd/pki/ca.crt"}
	found := Discover([]Component{{Program: Etcd, Origin: "etcd.service", Flags: Flags([]string{"/opt/bin/etcd"}, env)}})
	p := byName(t, found.Pairs, "etcd-server")
	if p.Cert != "/etc/etcd/pki/server.crt" || p.Key != "/etc/etcd/pki/server.key" ||
		!slices.Equal(p.Addresses, []string{"127.0.0.1:2379"}) {
		t.Errorf("found %+v", p)
	}
	got := found.Beside("/etc/etcd/pki", []string{"etcdctl-etcd-client.crt", "etcdctl-etcd-client.key"})
	if !slices.Equal(names(got), []string{"etcdctl-etcd-client"}) {
		t.Errorf("beside %q", names(got))
	}
}

func TestTheCommandLineWinsOverTheEnvironment(t *testing.T) {
	got := Flags([]string{"etcd", "-cert-file", "/a.crt", "--auto-tls", "--name=b", "x", "--name", "c"},
		[]string{"ETCD_CERT_FILE=/b.crt", "PATH=/bin"})
	if got["cert-file"] != "/a.crt" || got["auto-tls"] != "true" || got["name"] != "c" || len(got) != 3 {
		t.Errorf("flags %q", got)
	}
}

func TestTwoServersOfAKindHaveNamesOfTheirOwn(t *testing.T) {
	second := Component{Program: APIServer, Flags: map[string]string{"tls-cert-file": "/b.crt", "tls-private-key-file": "/b.key",
		"etcd-certfile":                  "/etc/kubernetes/pki/apiserver-etcd-client.crt", // shared with the first
		"etcd-keyfile":                   "/etc/kubernetes/pki/apiserver-etcd-client.key",
		"proxy-client-cert-file":         "relative.crt",
		"proxy-client-key-file":          "relative.key",
		"requestheader-client-ca-file":   "relative-ca.crt",
		"enable-aggregator-routing-dark": "true"}}
	found := Discover(append(kubeadmHost(), second))
	if p := byName(t, found.Pairs, "apiserver-2"); p.Cert != "/b.crt" {
		t.Errorf("found %+v", p)
	}
	if p := byName(t, found.Pairs, "apiserver-etcd-client"); len(p.Users) != 2 {
		t.Errorf("users %+v", p.Users)
	}
	if len(found.Notes) != 1 || !strings.Contains(found.Notes[0], "proxy-client-cert-file") {
		t.Errorf("notes %q", found.Notes)
	}
}

func TestOthersThatRenewAreNamed(t *testing.T) {
	found := Discover([]Component{
		{Program: K3s, Flags: map[string]string{"data-dir": "/data/"}},
		{Program: RKE2, Flags: map[string]string{}},
		{Program: APIServer, Flags: map[string]string{"openshift-config": "/etc/kubernetes/config.yaml"}},
		{Program: Etcd, Flags: map[string]string{"config-file": "/etc/etcd.yaml"}},
	})
	want := []Directory{{"/data/server/tls", "k3s"}, {"/data/server/tls/etcd", "k3s"},
		{"/var/lib/rancher/rke2/server/tls", "rke2"}, {"/var/lib/rancher/rke2/server/tls/etcd", "rke2"}}
	if !slices.Equal(found.Directories, want) {
		t.Errorf("directories %+v", found.Directories)
	}
	if len(found.Notes) != 2 || !strings.Contains(found.Notes[0], "OpenShift") || !strings.Contains(found.Notes[1], "/etc/etcd.yaml") {
		t.Errorf("notes %q", found.Notes)
	}
}

func TestOnlyProgramsWithAControlPlaneAreIdentified(t *testing.T) {
	for line, want := range map[string]Program{
		"/usr/bin/kubelet --x": Kubelet, "etcd": Etcd, "/usr/local/bin/k3s server": K3s, "/usr/local/bin/rke2 server": RKE2,
		"/usr/local/bin/k3s agent": "", "k3s": "", "etcdctl": "", "sh -c etcd": "",
	} {
		p, ok := Identify(strings.Fields(line))
		if ok != (want != "") || ok && p != want {
			t.Errorf("%q is %q, %v", line, p, ok)
		}
	}
	if _, ok := Identify(nil); ok {
		t.Error("no command line is a program's")
	}
}

func FuzzFlags(f *testing.F) {
	f.Add("kube-apiserver --a=b --c d -- - -x", "ETCD_A=b\nX")
	f.Fuzz(func(t *testing.T, line, env string) {
		flags := Flags(strings.Fields(line), strings.Split(env, "\n"))
		for _, p := range []Program{APIServer, ControllerManager, Scheduler, Etcd, Kubelet, K3s, RKE2} {
			for _, found := range Discover([]Component{{Program: p, Flags: flags}}).Pairs {
				if !strings.HasPrefix(found.Cert, "/") || !strings.HasPrefix(found.Key, "/") {
					t.Errorf("%+v has no absolute path", found)
				}
			}
		}
	})
}
