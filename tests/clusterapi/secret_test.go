// SPDX-License-Identifier: Apache-2.0

//go:build real

package clusterapi

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/must"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/runbook"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

const (
	day  = 24 * time.Hour
	year = 365 * day
)

func absent(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is there: %v", path, err)
	}
}

// text is a block of the page.
func (m *management) text(heading string, block int) string {
	m.t.Helper()
	return runbook.Read(m.t, page).Block(heading, block)
}

// etcd is a CA of etcdadm that began two years ago.
func etcd(left time.Duration) *testpki.Authority {
	return testpki.NewFrom(x509.Certificate{Subject: pkix.Name{CommonName: "etcd"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, NotBefore: time.Now().Add(-2 * year),
		NotAfter: time.Now().Add(left)}, testpki.RSA)
}

// etcdadm makes the three Secrets of its controller, with a pair that has this long to go.
func (m *management) etcdadm(ns, cluster string, ca *testpki.Authority, left time.Duration) {
	m.t.Helper()
	p := ca.Issue(x509.Certificate{Subject: pkix.Name{CommonName: cluster + "-kube-apiserver-etcd-client",
		Organization: []string{"system:masters"}}, NotBefore: ca.Cert.NotBefore, NotAfter: time.Now().Add(left),
		KeyUsage:    x509.KeyUsageKeyEncipherment | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	m.secret(ns, cluster+"-managed-etcd", map[string][]byte{"tls.crt": ca.PEM(), "tls.key": ca.KeyPEM()})
	m.secret(ns, cluster+"-etcd", map[string][]byte{"tls.crt": ca.PEM()})
	m.secret(ns, cluster+"-apiserver-etcd-client", map[string][]byte{"tls.crt": p.Cert, "tls.key": p.Key})
}

func (m *management) renewable(ns, cluster string) {
	m.t.Helper()
	m.etcdadm(ns, cluster, etcd(8*year), 20*day)
}

// pair is what the Secret has, which fits together; its first certificate is parsed.
func (m *management) pair(ns, cluster string) tls.Certificate {
	m.t.Helper()
	var s struct{ Data map[string][]byte }
	must.Do(m.t, json.Unmarshal([]byte(m.kubectl("get", "secret", "-n", ns, cluster+"-apiserver-etcd-client", "-o", "json")), &s))
	p, err := tls.X509KeyPair(s.Data["tls.crt"], s.Data["tls.key"])
	must.Do(m.t, err)
	return p
}

func renewed(m *management, ns string) {
	m.granted(ns)
	m.cluster(ns, "c1", m.credentials())
	ca := etcd(8 * year)
	m.etcdadm(ns, "c1", ca, 130*day)
	m.machine(ns, "c1", "renewed-1")
	first := m.pair(ns, "c1").Leaf
	// The host has the pair of the Secret: a new one would get it again.
	m.reports("renewed-1", first.NotAfter.Format(time.RFC3339), soon)
	m.others(ns)
	m.has(ns, "renewed-1", "")
	if got := m.pair(ns, "c1").Leaf; !got.Equal(first) {
		m.t.Errorf("with 130 days to go it was renewed until %v", got.NotAfter)
	}
	m.etcdadm(ns, "c1", ca, 100*day)
	old := m.pair(ns, "c1").Leaf
	m.event(ns, "c1", "EtcdClientRenewed", "no machine was replaced")
	next := m.pair(ns, "c1").Leaf
	if next.NotAfter.Before(time.Now().Add(year-day)) || next.Subject.String() != old.Subject.String() ||
		len(next.ExtKeyUsage) != 1 || next.CheckSignatureFrom(ca.Cert) != nil {
		m.t.Errorf("the new pair is %v until %v", next.Subject, next.NotAfter)
	}
	m.has(ns, "renewed-1", first.NotAfter.Format(time.RFC3339)) // now a new one would be better
	version := m.kubectl("get", "secret", "-n", ns, "c1-apiserver-etcd-client", "-o", "jsonpath={.metadata.resourceVersion}")
	m.others(ns + "-again")
	if got := m.kubectl("get", "secret", "-n", ns, "c1-apiserver-etcd-client", "-o", "jsonpath={.metadata.resourceVersion}"); got != version {
		m.t.Error("it was written again")
	}
}

func short(m *management, ns string) {
	m.granted(ns)
	m.cluster(ns, "c1", m.credentials())
	ca := etcd(90 * day)
	m.etcdadm(ns, "c1", ca, 20*day)
	m.event(ns, "c1", "EtcdClientRenewed", "no machine was replaced")
	if got := m.pair(ns, "c1").Leaf.NotAfter; !got.Equal(ca.Cert.NotAfter) {
		m.t.Errorf("it ends at %v, and its CA at %v", got, ca.Cert.NotAfter)
	}
	m.etcdadm(ns, "c1", etcd(30*day), 25*day)
	m.event(ns, "c1", "EtcdCAEnds", "the etcd CA has to be replaced")
}

func unfit(m *management, ns string) {
	m.granted(ns)
	m.cluster(ns, "c1", m.credentials())
	ca := etcd(8 * year)
	m.etcdadm(ns, "c1", ca, 20*day)
	m.event(ns, "c1", "EtcdClientRenewed", "no machine was replaced")
	m.kubectl("delete", "secret", "-n", ns, "c1-managed-etcd")
	p := ca.Issue(x509.Certificate{Subject: pkix.Name{CommonName: "x"}, NotAfter: time.Now().Add(day),
		NotBefore: time.Now().Add(-day)})
	m.secret(ns, "c1-apiserver-etcd-client", map[string][]byte{"tls.crt": p.Cert, "tls.key": p.Key})
	m.event(ns, "c1", "EtcdCAWithoutKey", "c1-managed-etcd and c1-etcd have no key")
	other := etcd(8 * year)
	m.secret(ns, "c1-etcd", map[string][]byte{"tls.crt": other.PEM(), "tls.key": other.KeyPEM()})
	m.event(ns, "c1", "EtcdCADidNotSign", "put the CA there that etcd trusts")
	m.secret(ns, "c1-etcd", map[string][]byte{"tls.crt": ca.PEM(), "tls.key": ca.KeyPEM()})
	last := ""
	m.until("the pair is renewed with the right CA", func() bool {
		got := m.pair(ns, "c1").Leaf.NotAfter
		last = got.String()
		return got.After(time.Now().Add(36 * time.Hour)) // two days, as before
	}, &last)
	events := m.kubectl("get", "events", "-A", "-o", "json")
	if strings.Contains(events, "PRIVATE") || strings.Contains(events, "MII") {
		m.t.Error("an event holds a key or a certificate")
	}
}
