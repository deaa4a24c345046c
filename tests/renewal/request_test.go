// SPDX-License-Identifier: Apache-2.0

//go:build real

package renewal

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/renew"
	"github.com/node-cert-agent/node-cert-agent/renew/pair"
	"github.com/node-cert-agent/node-cert-agent/renew/signer"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/must"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/staticpods"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/wait"
)

const (
	forEtcd     = "apiserver-etcd-client"
	forEtcdFile = "etc/kubernetes/pki/" + forEtcd
)

// control is a host with an API server, whose etcd is that of the others: it has not the key of the CA.
func (p *plane) control(lived, left time.Duration) *node {
	p.Helper()
	n := &node{Tree: staticpods.New(p.TB), name: "control"}
	n.CA = p.ca
	var servers []string
	for _, h := range p.hosts {
		servers = append(servers, "https://"+h.ip+":"+clientPort)
	}
	argv := []string{"kube-apiserver", "--etcd-cafile=/" + pki + "ca.crt", "--etcd-certfile=/" + forEtcdFile + ".crt",
		"--etcd-keyfile=/" + forEtcdFile + ".key", "--etcd-servers=" + strings.Join(servers, ",")}
	n.Kubelet(map[string]string{"kube-apiserver.yaml": staticpods.Manifest(quoted(argv)...)})
	n.Runs(20, "/kubepods/burstable/pod1/2", argv...)
	n.Write(pki+"ca.crt", string(p.ca.PEM()))
	n.Pair(forEtcdFile, p.ca.Issue(x509.Certificate{Subject: pkix.Name{CommonName: "kube-apiserver-etcd-client"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		NotBefore:   time.Now().Add(-lived), NotAfter: time.Now().Add(left)}))
	p.sign(n)
	return n
}

// leaf is the certificate of the pair on the host.
func (p *plane) leaf(n *node) *x509.Certificate {
	p.Helper()
	text, err := os.ReadFile(filepath.Join(n.Root, forEtcdFile+".crt"))
	must.Do(p, err)
	leaf, err := pair.Certificate(text)
	must.Do(p, err)
	return leaf
}

func TestThePairForAnExternalEtcdIsRenewedThroughEtcd(t *testing.T) {
	p := start(t, time.Minute, 1000*time.Hour)
	p.ready()
	n := p.control(lived, left)
	before := p.leaf(n)
	var services []*renew.Unattended
	for _, h := range []*node{n, p.hosts[0], p.hosts[1], p.hosts[2]} {
		services = append(services, p.service(h, time.Minute))
	}
	wait.For(t, "another host's certificate is in use", func() bool {
		for _, s := range services {
			blocked, err := s.Turn(t.Context())
			if err != nil {
				t.Fatalf("%s: %s, %v", s.Host, blocked, err)
			}
		}
		return len(p.records.with("control <5>signer keeps: ")) > 0
	})
	after := p.leaf(n)
	if after.Subject.String() != before.Subject.String() || !after.NotAfter.After(before.NotAfter) {
		t.Errorf("%v became %v", before.Subject, after.Subject)
	}
	if lines := p.records.with("signer issues: "); len(lines) != 1 {
		t.Errorf("issued %q", lines)
	}
	if lines := p.records.with("replaces"); len(lines) != 1 {
		t.Errorf("replaced %q", lines)
	}
	c := p.ask(p.hosts[0])
	defer c.Close()
	if all, err := c.List(t.Context(), "/node-cert-agent.io/renewal/", 9); err != nil || len(all) > 0 {
		t.Errorf("etcd keeps %v, %v", all, err)
	}
}

func TestThePairForAnExternalEtcdThatHasEndedIsRenewedByFiles(t *testing.T) {
	p := start(t, time.Minute, 1000*time.Hour)
	p.ready()
	n := p.control(2*time.Hour, -time.Hour)
	if blocked, err := p.service(n, time.Minute).Turn(t.Context()); err != nil || blocked == "" {
		t.Errorf("the service of a host whose pair for etcd has ended: %q, %v", blocked, err)
	}
	seen, err := n.client.Inspect(t.Context())
	must.Do(t, err)
	f := seen.Pairs[0]
	request, err := n.client.Request(t.Context(), signer.Change{Pair: f.Name, Leaf: f.Leaf.SHA256})
	must.Do(t, err)
	if _, err := p.hosts[1].client.Issue(t.Context(), signer.Issue{Request: request}); err == nil {
		t.Error("what has ended is followed though nobody insists")
	}
	certificate, err := p.hosts[1].client.Issue(t.Context(), signer.Issue{Request: request, Force: true})
	must.Do(t, err)
	must.Do(t, p.onDemand(n).Install(t.Context(), f, certificate))
	if blocked, err := p.service(n, time.Minute).Turn(t.Context()); err != nil || blocked != "" {
		t.Errorf("afterwards: %q, %v", blocked, err)
	}
}
