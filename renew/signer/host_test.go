// SPDX-License-Identifier: Apache-2.0

package signer

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/disk"
	"github.com/node-cert-agent/node-cert-agent/agent/frame"
	"github.com/node-cert-agent/node-cert-agent/renew/inspect"
	"github.com/node-cert-agent/node-cert-agent/renew/pair"
	"github.com/node-cert-agent/node-cert-agent/renew/replace"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/staticpods"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// Who asks.
const (
	person  = 0
	service = 7
)

// node is a control-plane host with two pairs, one of them due, and the signer's state directory.
type node struct {
	*testing.T
	*staticpods.Tree
	*handler
	log   lockedBuffer
	clock time.Time
	// throughEtcd is what renewal.throughEtcd is.
	throughEtcd bool
}

// leaf is a template that has lived for so long, and will for so long.
func leaf(lived, left time.Duration) x509.Certificate {
	return x509.Certificate{Subject: pkix.Name{CommonName: "kube-apiserver"}, NotBefore: time.Now().Add(-lived),
		NotAfter: time.Now().Add(left), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
}

const server, client = "apiserver", "front-proxy-client"

func newNode(t *testing.T, mode pair.Mode) *node {
	t.Helper()
	n := &node{T: t, Tree: staticpods.New(t), clock: time.Now()}
	n.CA = testpki.NewFrom(x509.Certificate{Subject: pkix.Name{CommonName: "kubernetes"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(1000 * time.Hour)}, testpki.ECDSA)
	argv := append([]string{"--proxy-client-cert-file=/etc/kubernetes/pki/front-proxy-client.crt",
		"--proxy-client-key-file=/etc/kubernetes/pki/front-proxy-client.key"}, staticpods.APIServer[1:]...)
	argv = append([]string{"kube-apiserver"}, argv...)
	n.Kubelet(map[string]string{"kube-apiserver.yaml": staticpods.Manifest(argv...)})
	n.Runs(20, "/kubepods/burstable/pod1/2", argv...)
	n.Pair("etc/kubernetes/pki/"+server, n.CA.Issue(leaf(50*time.Minute, 10*time.Minute)))
	n.Pair("etc/kubernetes/pki/"+client, n.CA.Issue(leaf(10*time.Minute, 50*time.Minute)))
	n.Write("etc/kubernetes/pki/ca.crt", string(n.CA.PEM()))
	n.Write("etc/kubernetes/pki/ca.key", string(n.CA.KeyPEM()))
	if err := os.Mkdir(filepath.Join(n.Root, "state"), 0o700); err != nil {
		t.Fatal(err)
	}
	n.start(mode)
	return n
}

// start is a new process on the same host.
func (n *node) start(mode pair.Mode) {
	n.Helper()
	if n.handler != nil {
		n.Replacer.Close()
	}
	tree, err := disk.Open(n.Root)
	if err != nil {
		n.Fatal(err)
	}
	state, err := tree.Directory("/state")
	if err != nil {
		n.Fatal(err)
	}
	r, err := replace.Open(tree, state)
	if err != nil {
		n.Fatal(err)
	}
	n.Cleanup(r.Close)
	status, err := r.Recover()
	if err != nil {
		n.Fatal(err)
	}
	policy := Policy{Policy: pair.Policy{Mode: mode, RenewBefore: 2 * time.Hour, WarnBefore: time.Second,
		ThroughEtcd: n.throughEtcd}}
	n.handler = &handler{log: &n.log, signatures: frame.RateLimit{Burst: 100, Every: time.Hour},
		renewals: frame.RateLimit{Burst: 40, Every: time.Hour}, issues: frame.RateLimit{Burst: 40, Every: time.Hour}, Signer: Signer{
			Host: inspect.Host{Root: n.Root, Proc: n.Proc(), UID: uint32(os.Getuid())}, Replacer: r, Blocked: status.Blocked,
			State: state,
			Load:  func() (Policy, error) { return policy, nil }, Now: func() time.Time { return n.clock }, Random: rand.Reader}}
}

// asks sends a request as Serve would.
func (n *node) asks(uid uint32, q any) (r reply) {
	n.Helper()
	text, err := json.Marshal(q)
	if err != nil {
		n.Fatal(err)
	}
	r, _ = n.Answer(n.Context(), frame.Peer{UID: uid, PID: 1}, text, nil).Value.(reply)
	return r
}

// sees is a pair as it is now.
func (n *node) sees(name string) pair.Facts {
	n.Helper()
	f, err := n.Host.Find(name)
	if err != nil {
		n.Fatal(err)
	}
	return f
}

// about is a change of a pair as it is now.
func (n *node) about(name string) *Change { return &Change{Pair: name, Leaf: n.sees(name).Leaf.SHA256} }

func (n *node) forced(name string) *Change {
	q := n.about(name)
	q.Force = true
	return q
}

// files are the bytes of all that a signer may touch.
func (n *node) files() (all []byte) {
	n.Helper()
	for _, name := range []string{server + ".crt", server + ".key", client + ".crt", client + ".key", "ca.crt", "ca.key"} {
		text, err := os.ReadFile(filepath.Join(n.Root, "etc/kubernetes/pki", name))
		if err != nil {
			n.Fatal(err)
		}
		all = append(all, text...)
	}
	return all
}

// secrets are what no reply and no line may hold: parts of each private key, in PEM and as text of other forms.
func (n *node) secrets() (all [][]byte) {
	n.Helper()
	for _, name := range []string{server + ".key", client + ".key", "ca.key"} {
		text, err := os.ReadFile(filepath.Join(n.Root, "etc/kubernetes/pki", name))
		if err != nil {
			n.Fatal(err)
		}
		block, _ := pem.Decode(text)
		// The key's scalar is within the first bytes of its DER; what follows is public.
		all = append(all, bytes.Split(text, []byte("\n"))[1], block.Bytes[:48])
	}
	return all
}
