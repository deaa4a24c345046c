// SPDX-License-Identifier: Apache-2.0

package pair

import (
	"path"
	"slices"
	"strings"
)

// Beside gives the pairs of a directory that no flag names, by the names of its files: NAME.crt with NAME.key, and
// NAME.conf, which may be a kubeconfig. The caller drops what is a CA or no kubeconfig.
func (found *Found) Beside(dir string, names []string) (pairs []Pair) {
	slices.Sort(names)
	for _, name := range names {
		base, ext := strings.TrimSuffix(name, path.Ext(name)), path.Ext(name)
		p := Pair{Role: Client, Cert: path.Join(dir, name), Key: path.Join(dir, base+".key")}
		switch {
		case strings.HasPrefix(name, "."):
			continue
		case ext == ".crt" && slices.Contains(names, base+".key"):
			p.Name = found.unique(besideName(dir, base))
		case ext == ".conf":
			p.Name, p.Key, p.Kubeconfig = found.unique(name), p.Cert, true
		default:
			continue
		}
		if slices.ContainsFunc(found.Pairs, func(q Pair) bool { return q.Cert == p.Cert }) || found.authority(p.Cert) {
			continue
		}
		if strings.Contains(p.Name, "etcd") {
			p.Targets = found.etcdTargets()
		}
		found.Pairs = append(found.Pairs, p)
		pairs = append(pairs, p)
	}
	return pairs
}

// etcdTargets are the client ports of this host's etcd.
func (found *Found) etcdTargets() (all []Target) {
	for _, p := range found.Pairs {
		if len(p.Users) > 0 && p.Users[0].Program == Etcd && p.Role == Server {
			for _, address := range p.Addresses {
				all = append(all, Target{Address: address, Path: "/health"})
			}
		}
	}
	return all
}

// apiserverEtcdClient is the pair with which the API server asks etcd.
const apiserverEtcdClient = "apiserver-etcd-client"

// EtcdClient is the pair with which this host can ask etcd. Those that nobody else uses come first.
func EtcdClient(all []Facts) (Facts, bool) {
	for _, name := range []string{"etcd-healthcheck-client", "etcdctl-etcd-client", apiserverEtcdClient} {
		for _, f := range all {
			if f.Name == name && f.Problem == "" && len(f.Targets) > 0 && f.CA != nil {
				return f, true
			}
		}
	}
	return Facts{}, false
}

// EtcdServer is the pair of this host's member of etcd, for its clients.
func EtcdServer(all []Facts) (Facts, bool) {
	for _, f := range all {
		if f.Role == Server && len(f.Users) > 0 && f.Users[0].Program == Etcd {
			return f, true
		}
	}
	return Facts{}, false
}

func (found *Found) authority(cert string) bool {
	return slices.ContainsFunc(found.Authorities, func(a Authority) bool { return a.Cert == cert })
}

// besideName is kubeadm's name: its pair etcd/healthcheck-client is called etcd-healthcheck-client.
func besideName(dir, base string) string {
	if path.Base(dir) == "etcd" && !strings.Contains(base, "etcd") {
		return "etcd-" + base
	}
	return base
}
