// SPDX-License-Identifier: Apache-2.0

// Package pair knows the certificates with keys that the control plane and etcd of a host use: which there are
// (Discover), what they look like (Examine), and who renews each of them until when (Judge). It is pure: the caller
// brings the processes, the bytes and the clock.
//
// A pair is found in the flags of components that run, and in the directories that those flags name, never by
// convention: clusters differ in where they keep their files. What is found says nothing about what may be done: the
// process that may do something decides for itself.
//
// Sources: kubeadm's cmd/kubeadm/app/phases/certs/certlist.go for names that people know from "kubeadm certs
// check-expiration"; kube-apiserver(8), etcd's server/etcdmain/config.go, etcdadm's constants/constants.go and k3s'
// pkg/daemons/control/deps/deps.go for flags and files.
package pair

import "time"

// Program is a program whose flags name pairs.
type Program string

// The programs that we know.
const (
	APIServer         Program = "kube-apiserver"
	ControllerManager Program = "kube-controller-manager"
	Scheduler         Program = "kube-scheduler"
	Etcd              Program = "etcd"
	Kubelet           Program = "kubelet"
	K3s               Program = "k3s"
	RKE2              Program = "rke2"
)

// Component is a program of this host as it runs.
type Component struct {
	Program Program   `json:"program"`
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
	// Origin is what started it: "static pod" or the name of a systemd unit.
	Origin string `json:"origin"`
	// Flags are those of its command line and, below them, those of its unit's environment; names without dashes.
	Flags map[string]string `json:"-"`
}

// Role is what a pair is for.
type Role string

// The roles. A Peer pair is both server and client, between members of etcd.
const (
	Server Role = "server"
	Client Role = "client"
	Peer   Role = "peer"
)

// Pair is a certificate and its key, by where they are.
type Pair struct {
	// Name is the one that "kubeadm certs check-expiration" has for it, where it has one.
	Name string `json:"name"`
	Role Role   `json:"role"`
	// Cert and Key are paths. They are equal if one file holds both.
	Cert string `json:"certificate"`
	Key  string `json:"key"`
	// Kubeconfig is set if the file is a kubeconfig.
	Kubeconfig bool `json:"kubeconfig,omitempty"`
	// Users are the programs whose flags name it; none if it is for people, or only lies beside the others.
	Users []Component `json:"users,omitempty"`
	// AtStart is set if its users read it only when they start.
	AtStart bool `json:"readAtStart,omitempty"`
	// Addresses are where a server of this host shows the certificate, as host:port.
	Addresses []string `json:"addresses,omitempty"`
	// Targets are servers that say whether they accept the pair's certificate from a client.
	Targets []Target `json:"targets,omitempty"`
}

// Target is a server that a client can be proven with: a GET of Path answers with anything but 401, or with no
// handshake, if the client is refused.
type Target struct {
	// Address is host:port.
	Address string `json:"address"`
	Path    string `json:"path"`
	// Proxied is set if the server takes the client for an authenticating proxy, and asks it for whom it speaks.
	Proxied bool `json:"proxied,omitempty"`
}

// Authority is a CA certificate of this host, by where it is, and where its key may be.
type Authority struct{ Cert, Key string }

// Directory is where pairs were found, and who renews those that lie there: "k3s", "rke2", or "" if it is for us to
// find out.
type Directory struct{ Path, Manager string }

// Found is what the flags say.
type Found struct {
	Pairs       []Pair
	Authorities []Authority
	// Directories are where pairs were found; there may be more of them that no flag names.
	Directories []Directory
	// Notes say what else was seen, as one line each.
	Notes []string
}

// Leaf is what a certificate says.
type Leaf struct {
	Subject   string    `json:"subject"`
	Issuer    string    `json:"issuer"`
	Serial    string    `json:"serial"`
	SHA256    string    `json:"sha256"`
	NotBefore time.Time `json:"notBefore"`
	NotAfter  time.Time `json:"notAfter"`
}

// CA is the authority of this host that signed a leaf.
type CA struct {
	Path     string    `json:"path"`
	Subject  string    `json:"subject"`
	SHA256   string    `json:"sha256"`
	NotAfter time.Time `json:"notAfter"`
	// KeyHere is set if the host has the authority's key; KeyPath is then where.
	KeyHere bool   `json:"keyHere"`
	KeyPath string `json:"-"`
}

// Facts are what an inspection finds out about a pair.
type Facts struct {
	Pair
	Leaf Leaf `json:"leaf,omitzero"`
	CA   *CA  `json:"ca,omitempty"`
	// Chain is what the pair's file holds, each certificate in DER, if the pair waits for proof.
	Chain [][]byte `json:"chain,omitempty"`
	// Changed is when the certificate's file was last changed (ctime).
	Changed time.Time `json:"changed,omitzero"`
	// Problem is why there are no other facts, or why the pair cannot be used: one line without content.
	Problem string `json:"problem,omitempty"`
	// Manager is who else is known to renew it: "kubelet", "k3s", or "" for nobody.
	Manager string `json:"manager,omitempty"`
	// Foreign is why we would not touch it, though its authority's key is here: one line.
	Foreign string `json:"foreign,omitempty"`
}
