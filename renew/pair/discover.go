// SPDX-License-Identifier: Apache-2.0

package pair

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
)

// flag says that a program's flags name a pair. A kubeconfig has no key flag.
type flag struct {
	program   Program
	name      string
	role      Role
	cert, key string
	// addresses are where the pair is served.
	addresses func(flags map[string]string) []string
	// targets are who can say whether they accept it.
	targets func(flags map[string]string) []Target
}

// flags are all that we know. The names are kubeadm's.
var flags = []flag{
	{APIServer, "apiserver", Server, "tls-cert-file", "tls-private-key-file", secureAddresses, nil},
	{APIServer, "apiserver-kubelet-client", Client, "kubelet-client-certificate", "kubelet-client-key", nil,
		kubeletTarget},
	{APIServer, "front-proxy-client", Client, "proxy-client-cert-file", "proxy-client-key-file", nil, proxyTarget},
	{APIServer, apiserverEtcdClient, Client, "etcd-certfile", "etcd-keyfile", nil,
		urlTargets("etcd-servers", "/health")},
	{Etcd, "etcd-server", Server, "cert-file", "key-file", urlAddresses("listen-client-urls"), nil},
	{Etcd, "etcd-peer", Peer, "peer-cert-file", "peer-key-file", urlAddresses("listen-peer-urls"),
		urlTargets("initial-cluster", "/raft/probing")},
	{ControllerManager, "controller-manager.conf", Client, "kubeconfig", "", nil, nil},
	{Scheduler, "scheduler.conf", Client, "kubeconfig", "", nil, nil},
	{Kubelet, "kubelet.conf", Client, "kubeconfig", "", nil, nil},
}

// authorities are the flags that name CA certificates, with the flag of the key where there is one. Else the key may
// be beside the certificate, under the same name.
var authorities = []struct {
	program   Program
	cert, key string
}{
	{APIServer, "client-ca-file", ""}, {APIServer, "requestheader-client-ca-file", ""}, {APIServer, "etcd-cafile", ""},
	{ControllerManager, "cluster-signing-cert-file", "cluster-signing-key-file"}, {ControllerManager, "root-ca-file", ""},
	{Etcd, "trusted-ca-file", ""}, {Etcd, "peer-trusted-ca-file", ""},
}

// Discover finds pairs in what runs on a host, in the order in which they would be renewed.
func Discover(components []Component) (found Found) {
	for _, f := range flags {
		for _, c := range components {
			if c.Program == f.program {
				found.add(f, c)
			}
		}
	}
	for _, a := range authorities {
		for _, c := range components {
			cert := c.Flags[a.cert]
			if c.Program != a.program || !path.IsAbs(cert) {
				continue
			}
			key := cmp.Or(c.Flags[a.key], strings.TrimSuffix(cert, path.Ext(cert))+".key")
			if authority := (Authority{cert, key}); !slices.Contains(found.Authorities, authority) {
				found.Authorities = append(found.Authorities, authority)
			}
		}
	}
	for _, c := range components {
		found.others(c)
	}
	return found
}

// add notes a pair that a component's flags name, or that the component uses one that is known.
func (found *Found) add(f flag, c Component) {
	cert, key := c.Flags[f.cert], c.Flags[f.key]
	if f.key == "" {
		key = cert
	}
	if cert == "" {
		return
	}
	if !path.IsAbs(cert) || !path.IsAbs(key) {
		found.Notes = append(found.Notes,
			fmt.Sprintf("%s has a pair of files that its flags name by no absolute path: --%s", c.Program, f.cert))
		return
	}
	for i, p := range found.Pairs {
		if p.Cert == cert && p.Key == key {
			found.Pairs[i].Users = append(p.Users, c)
			return
		}
	}
	p := Pair{Name: found.unique(f.name), Role: f.role, Cert: path.Clean(cert), Key: path.Clean(key),
		Kubeconfig: f.key == "", Users: []Component{c}, AtStart: f.key == "" && f.program != Kubelet}
	if f.addresses != nil {
		p.Addresses = f.addresses(c.Flags)
	}
	if f.targets != nil {
		p.Targets = f.targets(c.Flags)
	}
	found.Pairs = append(found.Pairs, p)
	if f.program != Kubelet {
		found.look(Directory{Path: path.Dir(p.Cert)})
	}
}

// look notes a directory once.
func (found *Found) look(d Directory) {
	if !slices.Contains(found.Directories, d) {
		found.Directories = append(found.Directories, d)
	}
}

// unique is the name, with a number if another pair has it: one host can run two API servers.
func (found *Found) unique(name string) string {
	candidate := name
	for n := 2; ; n++ {
		if !slices.ContainsFunc(found.Pairs, func(p Pair) bool { return p.Name == candidate }) {
			return candidate
		}
		candidate = name + "-" + strconv.Itoa(n)
	}
}

// others notes what is somebody else's.
func (found *Found) others(c Component) {
	switch {
	case c.Program == K3s || c.Program == RKE2:
		data := cmp.Or(c.Flags["data-dir"], c.Flags["d"], "/var/lib/rancher/"+string(c.Program))
		for _, dir := range []string{"/server/tls", "/server/tls/etcd"} {
			found.look(Directory{path.Clean(data + dir), string(c.Program)})
		}
	case c.Program == APIServer && c.Flags["openshift-config"] != "":
		found.Notes = append(found.Notes, "OpenShift's operators renew the certificates of this control plane")
	case c.Program == Etcd && c.Flags["config-file"] != "":
		found.Notes = append(found.Notes, "etcd reads a configuration file, which is not looked at: "+c.Flags["config-file"])
	}
}

// kubeletTarget is this host's kubelet, at the port that it has unless its configuration says otherwise.
func kubeletTarget(map[string]string) []Target {
	return []Target{{Address: "127.0.0.1:10250", Path: "/healthz"}}
}

func proxyTarget(flags map[string]string) (all []Target) {
	for _, address := range secureAddresses(flags) {
		all = append(all, Target{address, "/version", true})
	}
	return all
}

// urlTargets are the servers at the https URLs in a flag, which may have names before them: NAME=URL.
func urlTargets(flag, path string) func(map[string]string) []Target {
	return func(flags map[string]string) (all []Target) {
		for text := range strings.SplitSeq(flags[flag], ",") {
			if _, after, ok := strings.Cut(text, "=http"); ok {
				text = "http" + after
			}
			for _, address := range urlAddresses(flag)(map[string]string{flag: text}) {
				all = append(all, Target{Address: address, Path: path})
			}
		}
		return all
	}
}

// URLTarget is the server at an https URL.
func URLTarget(text, path string) []Target {
	return urlTargets("u", path)(map[string]string{"u": text})
}

// secureAddresses are where a kube-apiserver serves: at the address that it announces, or else at every one.
func secureAddresses(flags map[string]string) []string {
	host := cmp.Or(flags["bind-address"], "0.0.0.0")
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = cmp.Or(flags["advertise-address"], "127.0.0.1")
	}
	return []string{net.JoinHostPort(host, cmp.Or(flags["secure-port"], "6443"))}
}

// urlAddresses are those of the https URLs in a flag.
func urlAddresses(flag string) func(map[string]string) []string {
	return func(flags map[string]string) (all []string) {
		for text := range strings.SplitSeq(flags[flag], ",") {
			u, err := url.Parse(strings.TrimSpace(text))
			if err != nil || u.Scheme != "https" {
				continue
			}
			host := u.Hostname()
			if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
				host = "127.0.0.1"
			}
			all = append(all, net.JoinHostPort(host, cmp.Or(u.Port(), "443")))
		}
		return all
	}
}
