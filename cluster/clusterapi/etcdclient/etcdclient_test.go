// SPDX-License-Identifier: Apache-2.0

package etcdclient

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/secret"
	"github.com/node-cert-agent/node-cert-agent/renew/issue"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

const day = 24 * time.Hour

var (
	now    = time.Now().Truncate(time.Second)
	month  = Policy{Before: 30 * day}
	etcd   = ca("etcd", 10*365*day)
	client = x509.Certificate{Subject: pkix.Name{CommonName: "c1-kube-apiserver-etcd-client",
		Organization: []string{"system:masters"}}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
)

// ca is one that began nine years ago and has this long to go.
func ca(cn string, left time.Duration) *testpki.Authority {
	return testpki.NewFrom(x509.Certificate{Subject: pkix.Name{CommonName: cn}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: now.AddDate(-9, 0, 0), NotAfter: now.Add(left)}, testpki.ECDSA)
}

// leaf is a pair of etcdadm: it began with its CA.
func leaf(by *testpki.Authority, left time.Duration) issue.Pair {
	template := client
	template.NotBefore, template.NotAfter = by.Cert.NotBefore, now.Add(left)
	p := by.Issue(template)
	return issue.Pair{Certificate: p.Cert, Key: secret.New(p.Key)}
}

func held(by *testpki.Authority) Authority {
	return Authority{Secret: "c1-managed-etcd", Cert: by.PEM(), Key: secret.New(by.KeyPEM())}
}

func without(a Authority) Authority {
	a.Key = secret.Bytes{}
	return a
}

func TestAPairIsDueInItsLastThirdOrMonth(t *testing.T) {
	lives := func(life, left time.Duration) *x509.Certificate {
		return &x509.Certificate{NotBefore: now.Add(left - life), NotAfter: now.Add(left)}
	}
	for sentence, c := range map[string]struct {
		leaf *x509.Certificate
		want bool
	}{
		"of a year, a third and a day is left":                   {lives(360*day, 121*day), false},
		"of a year, less than a third is left":                   {lives(360*day, 119*day), true},
		"of sixty days, 29 are left":                             {lives(60*day, 29*day), true},
		"of sixty days, 31 are left":                             {lives(60*day, 31*day), false},
		"of ten minutes, six are left":                           {lives(10*time.Minute, 6*time.Minute), false},
		"of ten minutes, four are left":                          {lives(10*time.Minute, 4*time.Minute), true},
		"it says ten years, as its CA, and has all but 200 days": {lives(3650*day, 200*day), false},
		"it says ten years and has 100 days":                     {lives(3650*day, 100*day), true},
		"it has ended":                                           {lives(360*day, -day), true},
	} {
		if got := month.Due(c.leaf, now); got != c.want {
			t.Errorf("%s: due is %v", sentence, got)
		}
	}
}

func TestASuccessorIsAsTheOldPairWithAnotherKeyAndEnd(t *testing.T) {
	old := leaf(etcd, 20*day)
	next, err := month.Renew(old, []Authority{without(held(ca("etcd", day))), held(etcd)}, now, rand.Reader)
	if err != nil || next == nil {
		t.Fatal(next, err)
	}
	if bytes.Equal(next.Key.Reveal(), old.Key.Reveal()) || month.Due(next.Leaf, now) ||
		!next.Leaf.NotAfter.Equal(now.Add(year)) || next.Leaf.Subject.String() != Leaf(old.Certificate).Subject.String() {
		t.Errorf("the successor is %v, until %v", next.Leaf.Subject, next.Leaf.NotAfter)
	}
	again, err := month.Renew(next.Pair, []Authority{held(etcd)}, now, rand.Reader)
	if again != nil || err != nil {
		t.Errorf("it is due at once: %v, %v", again, err)
	}
}

func TestASuccessorEndsWithItsCA(t *testing.T) {
	short := ca("etcd", 60*day)
	next, err := month.Renew(leaf(short, 20*day), []Authority{held(short)}, now, rand.Reader)
	if err != nil || !next.Leaf.NotAfter.Equal(short.Cert.NotAfter) {
		t.Fatalf("%+v, %v", next, err)
	}
}

func TestWhatCannotBeRenewedIsSaid(t *testing.T) {
	other, broken := ca("etcd", 3650*day), leaf(etcd, 20*day)
	broken.Key = leaf(etcd, 20*day).Key
	short := ca("etcd", 60*day)
	self := issue.Pair{Certificate: other.PEM(), Key: secret.New(other.KeyPEM())}
	self.Certificate = testpki.NewFrom(x509.Certificate{Subject: pkix.Name{CommonName: "x"}, IsCA: true,
		BasicConstraintsValid: true, NotBefore: now.Add(-day), NotAfter: now.Add(time.Hour)}, testpki.ECDSA).PEM()
	for sentence, c := range map[string]struct {
		old         issue.Pair
		cas         []Authority
		want, words string
	}{
		"no CA":                {leaf(etcd, day), nil, NoKey, "put CA and key into one"},
		"a CA without its key": {leaf(etcd, day), []Authority{without(held(etcd))}, NoKey, "c1-managed-etcd"},
		"a CA of the same name": {leaf(etcd, day), []Authority{held(other)}, WrongCA,
			"put the CA there that etcd trusts"},
		"the key of another CA": {leaf(etcd, day), []Authority{{Secret: "s", Cert: etcd.PEM(), Key: secret.New(other.KeyPEM())}},
			WrongCA, ""},
		"a wrong CA, and one that ends": {leaf(short, 59*day), []Authority{held(short), held(other)}, CAEnds,
			"the etcd CA has to be replaced"},
		"a CA that has ended":  {leaf(ca("etcd", -day), -day), []Authority{held(etcd)}, WrongCA, ""},
		"another pair's key":   {broken, []Authority{held(etcd)}, BadPair, "tls.key is not the key"},
		"no certificate":       {issue.Pair{Certificate: []byte("x")}, []Authority{held(etcd)}, BadPair, "tls.crt holds no"},
		"a CA for a leaf":      {self, []Authority{held(etcd)}, "", ""},
		"a CA that is no text": {leaf(etcd, day), []Authority{{Secret: "s", Cert: []byte("x"), Key: secret.New([]byte("y"))}}, NotIssued, ""},
	} {
		next, err := month.Renew(c.old, c.cas, now, rand.Reader)
		var r *Refusal
		if next != nil || !errors.As(err, &r) || c.want != "" && r.Reason != c.want || !strings.Contains(r.Error(), c.words) {
			t.Errorf("%s: %v, %v", sentence, next, err)
		}
		if err != nil && strings.Contains(err.Error(), "PRIVATE") {
			t.Errorf("%s: %v", sentence, err)
		}
	}
}
