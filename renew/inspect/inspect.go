// SPDX-License-Identifier: Apache-2.0

// Package inspect looks at a host for package pair: which components run, and what is in the files that their flags
// name. It changes nothing, asks nobody, and reads the private keys only to compare their public halves.
//
// A component counts if root runs it and if root's own files say that it is to run: its command line is that of a
// static pod's manifest, or it is the main program of a systemd unit. A pod can run as root, too, under any name and
// with any command line; a path from there would be a path from the cluster. So a process that neither a manifest nor
// a unit knows is passed over, with a note.
//
// Sources: proc_pid_cmdline(5), proc_pid_stat(5), proc_pid_cgroup(5); kubelet's pkg/kubelet/config/file_linux.go for
// which manifests it reads; systemd.unit(5) and systemd.syntax(7).
package inspect

import (
	"crypto/x509"
	"path"
	"strings"

	"github.com/node-cert-agent/node-cert-agent/agent/kubeconfig"
	"github.com/node-cert-agent/node-cert-agent/renew/pair"
)

// Host is where to look: the roots of its files and of its proc(5), and whose files and processes count besides
// root's.
type Host struct {
	Root, Proc string
	UID        uint32
}

// Inspection is what was found. Nothing in it is secret.
type Inspection struct {
	Pairs []pair.Facts `json:"pairs"`
	// Waiting is the name of the pair that was replaced and is neither kept nor restored yet; Blocked is why neither
	// will succeed.
	Waiting string `json:"waiting,omitempty"`
	Blocked string `json:"blocked,omitempty"`
	// Etcd is how to ask etcd, for the service that renews by itself; nil where it cannot.
	Etcd  *Etcd    `json:"etcd,omitempty"`
	Notes []string `json:"notes,omitempty"`
}

// Inspect looks at the host as it is now. What cannot be read is in the facts about it.
func (h Host) Inspect() (Inspection, error) {
	components, notes, err := h.components()
	if err != nil {
		return Inspection{}, err
	}
	found := pair.Discover(components)
	authorities := h.authorities(found.Authorities)
	out := Inspection{Notes: append(notes, found.Notes...)}
	for _, p := range found.Pairs {
		if f, ok := h.facts(p, "", authorities); ok {
			out.Pairs = append(out.Pairs, f)
		}
	}
	for _, dir := range found.Directories {
		own := authorities
		if dir.Manager != "" {
			own = nil // there are many, in files of their own, and whose they are is known
		}
		for _, p := range found.Beside(dir.Path, h.names(dir.Path)) {
			if f, ok := h.facts(p, dir.Manager, own); ok {
				out.Pairs = append(out.Pairs, f)
			}
		}
	}
	pair.Sort(out.Pairs)
	return out, nil
}

// authorities opens those that exist, each with the certificates and with the key that are there.
func (h Host) authorities(all []pair.Authority) (opened []pair.Opened) {
	for _, a := range all {
		text, err := h.read(a.Cert)
		if err != nil {
			continue
		}
		o := pair.Opened{Path: a.Cert, KeyPath: a.Key, Certs: pair.Certificates(text.data)}
		if key, err := h.read(a.Key); err == nil {
			o.Key, _ = pair.KeyOf(key.data)
		}
		opened = append(opened, o)
	}
	return opened
}

// facts are those of a pair; none if what lies there is no pair of a leaf, and no program said that it is.
func (h Host) facts(p pair.Pair, manager string, authorities []pair.Opened) (f pair.Facts, ok bool) {
	f = pair.Facts{Pair: p, Manager: manager}
	cert, key, err := h.halves(&f)
	if err != nil {
		f.Problem = err.Error()
		return f, len(p.Users) > 0
	}
	leaf, err := pair.Certificate(cert.data)
	if err != nil {
		f.Problem = path.Base(f.Cert) + " " + err.Error()
		return f, len(p.Users) > 0
	}
	if leaf.IsCA && len(p.Users) == 0 || !isLeaf(leaf) {
		return f, false
	}
	f.Changed, f.Foreign = cert.changed, cert.foreign
	public, err := pair.KeyOf(key.data)
	if err != nil {
		f.Problem = path.Base(f.Key) + " " + err.Error()
	}
	f.Examine(leaf, public, authorities)
	return f, true
}

// isLeaf leaves out what only looks like a pair beside others: a certificate that nobody can use for TLS.
func isLeaf(c *x509.Certificate) bool {
	return len(c.ExtKeyUsage) > 0 || len(c.UnknownExtKeyUsage) > 0 || !c.IsCA
}

// halves reads certificate and key. A kubeconfig holds both, or names the file of a kubelet.
func (h Host) halves(f *pair.Facts) (cert, key content, err error) {
	if cert, err = h.read(f.Cert); err != nil {
		return cert, key, err
	}
	if !f.Kubeconfig {
		if key, err = h.read(f.Key); err == nil && key.foreign != "" {
			cert.foreign = key.foreign
		}
		return cert, key, err
	}
	user, err := kubeconfig.CurrentUser(cert.data)
	switch {
	case err != nil:
		return cert, key, err
	case user.CertificateFile == "":
		key, cert.data, key.data = cert, user.Certificate, user.Key
		f.Targets = pair.URLTarget(user.Server, "/version")
		return cert, key, nil
	}
	// A kubelet renews what it names here by itself, behind a link of its own.
	f.Cert, f.Key = resolve(f.Cert, user.CertificateFile), resolve(f.Cert, user.KeyFile)
	f.Kubeconfig = false
	if len(f.Users) > 0 && f.Users[0].Program == pair.Kubelet {
		f.Manager = string(pair.Kubelet)
	}
	if cert, err = h.follow(f.Cert); err != nil {
		return cert, key, err
	}
	key, err = h.follow(f.Key)
	return cert, key, err
}

// resolve is how clients read a path in a kubeconfig: relative to that file's directory.
func resolve(file, name string) string {
	if strings.HasPrefix(name, "/") {
		return name
	}
	return path.Join(path.Dir(file), name)
}
