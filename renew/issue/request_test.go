// SPDX-License-Identifier: Apache-2.0

package issue

import (
	"bytes"
	"crypto"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"strings"
	"testing"
	"time"
)

// asking is a template for the client of an etcd that is elsewhere.
var asking = x509.Certificate{Subject: pkix.Name{CommonName: "kube-apiserver-etcd-client", Organization: []string{"a"}},
	ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, KeyUsage: x509.KeyUsageDigitalSignature}

// elsewhere is an order without the CA's key.
func (c ca) elsewhere(leaf *x509.Certificate, key crypto.Signer) Order {
	o := c.order(leaf, key)
	o.CAKey = keyPEM(pkcs8, edKey())
	return o
}

func TestAnotherHostRenewsWhatTheOldKeyAsksFor(t *testing.T) {
	c := newCA(ecKey(elliptic.P256()))
	for form, key := range map[string]crypto.Signer{pkcs1: rsaKey(2048), sec1: ecKey(elliptic.P384()), pkcs8: edKey()} {
		for _, reuse := range []bool{false, true} {
			old := c.leaf(asking, key)
			o := c.elsewhere(old, key)
			o.Old.Key = keyPEM(form, key)
			r, made, err := MakeRequest(o.Old, reuse, rand.Reader)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(r.Text()), "PRIVATE") || reuse != bytes.Equal(made.Reveal(), o.Old.Key.Reveal()) {
				t.Errorf("reuse %t: the key became another: %t; the request is\n%s", reuse, !reuse, r.Text())
			}
			received, err := ParseRequest(r.Text())
			if err != nil {
				t.Fatal(err)
			}
			leaf, err := c.order(old, key).Answer(received, rand.Reader)
			if err != nil {
				t.Fatal(err)
			}
			s, err := o.Accept(made, certPEM(leaf))
			if err != nil {
				t.Fatal(err)
			}
			wanted(t, old, s)
			if b, _ := pem.Decode(s.Key.Reveal()); b.Type != form {
				t.Errorf("%s became %s", form, b.Type)
			}
		}
	}
}

func TestWhatFollowsTheLeafInItsFileStaysAfterAnAnswer(t *testing.T) {
	c, key := newCA(ecKey(elliptic.P256())), ecKey(elliptic.P256())
	old := c.leaf(asking, key)
	o := c.elsewhere(old, key)
	o.Old.Certificate = certPEM(old, c.cert)
	r, made, err := MakeRequest(o.Old, false, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s, err := o.Accept(made, certPEM(must(c.order(old, key).Answer(r, rand.Reader))))
	if err != nil || !bytes.HasSuffix(s.Certificate, certPEM(c.cert)) {
		t.Errorf("%v\n%s", err, s.Certificate)
	}
}

// request are the parts of one, each of which can be another.
type parts struct {
	leaf, csr, proof []byte
	before, more     string
	headers          map[string]string
}

func (p parts) text() []byte {
	text := []byte(p.before)
	for _, b := range []pem.Block{{Type: certificateBlock, Bytes: p.leaf}, {Type: requestBlock, Bytes: p.csr, Headers: p.headers},
		{Type: proofBlock, Bytes: p.proof}} {
		text = append(text, pem.EncodeToMemory(&b)...)
	}
	return append(text, p.more...)
}

func TestARequestOfWhoHasNotBothKeysIsNone(t *testing.T) {
	c, key, stolen := newCA(ecKey(elliptic.P256())), ecKey(elliptic.P256()), ecKey(elliptic.P256())
	old := c.leaf(asking, key)
	csr := func(t x509.CertificateRequest, by crypto.Signer) []byte {
		return must(x509.CreateCertificateRequest(rand.Reader, &t, by))
	}
	mine := x509.CertificateRequest{RawSubject: old.RawSubject}
	whole := func(leaf, csr []byte, by crypto.Signer) parts {
		return parts{leaf: leaf, csr: csr, proof: must(prove(by, leaf, csr, rand.Reader))}
	}
	good := whole(old.Raw, csr(mine, stolen), key)
	if _, err := ParseRequest(good.text()); err != nil {
		t.Fatal(err)
	}
	forged := bytes.Clone(good.csr)
	forged[len(forged)-1] ^= 1
	names := mine
	names.DNSNames = []string{"kube-apiserver"}
	for name, p := range map[string]parts{
		"signed with another key":   whole(old.Raw, good.csr, stolen),
		"another new key":           {leaf: good.leaf, csr: csr(mine, ecKey(elliptic.P256())), proof: good.proof},
		"another leaf of that key":  {leaf: c.leaf(asking, key).Raw, csr: good.csr, proof: good.proof},
		"another subject":           whole(old.Raw, csr(x509.CertificateRequest{Subject: pkix.Name{CommonName: "root"}}, stolen), key),
		"names":                     whole(old.Raw, csr(names, stolen), key),
		"not signed by the new key": whole(old.Raw, forged, key),
		"no proof":                  {leaf: good.leaf, csr: good.csr},
		"a proof of another thing": {leaf: good.leaf, csr: good.csr,
			proof: must(crypto.SignMessage(key, rand.Reader, append(good.leaf, good.csr...), crypto.SHA256))},
		"no certificate":     whole([]byte{1}, good.csr, key),
		"no request":         whole(good.leaf, []byte{1}, key),
		"more":               {leaf: good.leaf, csr: good.csr, proof: good.proof, more: "x"},
		"too much":           {leaf: good.leaf, csr: good.csr, proof: good.proof, more: strings.Repeat("\n", MaxRequest)},
		"a long text before": {before: strings.Repeat("x\n", MaxRequest), leaf: good.leaf, csr: good.csr, proof: good.proof},
		"headers":            {headers: map[string]string{"A": "b"}, leaf: good.leaf, csr: good.csr, proof: good.proof},
		"out of order":       {leaf: good.csr, csr: good.leaf, proof: good.proof},
	} {
		_, err := ParseRequest(p.text())
		if _, ok := errors.AsType[*Refusal](err); !ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ParseRequest(certPEM(old)); err == nil {
		t.Error("a certificate alone is a request")
	}
}

func TestOnlyAClientsCertificateIsAnswered(t *testing.T) {
	c, key := newCA(ecKey(elliptic.P256())), ecKey(elliptic.P256())
	other := newCA(ecKey(elliptic.P256()))
	with := func(change func(*x509.Certificate)) x509.Certificate {
		template := asking
		change(&template)
		return template
	}
	for name, row := range map[string]struct {
		leaf x509.Certificate
		by   ca
		want Reason
	}{
		"a server's too": {with(func(t *x509.Certificate) {
			t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
		}), c, NotClient},
		"somebody's whom nobody knows": {with(func(t *x509.Certificate) {
			t.UnknownExtKeyUsage = []asn1.ObjectIdentifier{{1, 2, 3}}
		}), c, NotClient},
		"anybody's": {with(func(t *x509.Certificate) { t.ExtKeyUsage = nil }), c, NotClient},
		"of a CA": {with(func(t *x509.Certificate) {
			t.IsCA, t.BasicConstraintsValid = true, true
		}), c, IsCA},
		"of a CA of the same name": {asking, other, ForeignCA},
		"from the future":          {with(func(t *x509.Certificate) { t.NotBefore = now.Add(time.Hour) }), c, ClockBehind},
		"with much left":           {with(func(t *x509.Certificate) { t.NotAfter = now.Add(400 * day) }), c, NoGain},
	} {
		r, _, err := MakeRequest(Pair{Certificate: certPEM(row.by.leaf(row.leaf, key)), Key: keyPEM(pkcs8, key)}, false, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		made, err := c.order(c.cert, key).Answer(r, rand.Reader)
		if refusal, ok := errors.AsType[*Refusal](err); !ok || refusal.Reason != row.want || made != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOnlyTheSuccessorIsAccepted(t *testing.T) {
	c, other, key := newCA(ecKey(elliptic.P256())), newCA(ecKey(elliptic.P256())), ecKey(elliptic.P256())
	old := c.leaf(asking, key)
	o := c.elsewhere(old, key)
	r, made, err := MakeRequest(o.Old, false, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	next := parsed(made.Reveal())
	with := func(by ca, key crypto.Signer, change func(*x509.Certificate)) []byte {
		template := asking
		template.NotAfter = now.Add(365 * day)
		change(&template)
		return certPEM(by.leaf(template, key))
	}
	same := func(*x509.Certificate) {}
	good := with(c, next, same)
	if _, err := o.Accept(made, good); err != nil {
		t.Fatal(err)
	}
	for name, answer := range map[string][]byte{
		"of another CA":   with(other, next, same),
		"of another key":  with(c, key, same),
		"another subject": with(c, next, func(t *x509.Certificate) { t.Subject = pkix.Name{CommonName: "root"} }),
		"a server's": with(c, next, func(t *x509.Certificate) {
			t.ExtKeyUsage = append(t.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
		}),
		"no longer":       with(c, next, func(t *x509.Certificate) { t.NotAfter = old.NotAfter }),
		"not yet":         with(c, next, func(t *x509.Certificate) { t.NotBefore = now.Add(time.Hour) }),
		"two":             append(bytes.Clone(good), certPEM(c.cert)...),
		"none":            nil,
		"a request":       r.Text(),
		"very much of it": append(bytes.Repeat([]byte("\n"), MaxRequest), good...),
	} {
		if s, err := o.Accept(made, answer); err == nil || s.Leaf != nil {
			t.Errorf("%s: %+v", name, s.Leaf)
		}
	}
}

// parsed is a key of a test.
func parsed(text []byte) crypto.Signer {
	b, _ := pem.Decode(text)
	return must(x509.ParsePKCS8PrivateKey(b.Bytes)).(crypto.Signer)
}

func FuzzParseRequest(f *testing.F) {
	c, key := newCA(ecKey(elliptic.P256())), ecKey(elliptic.P256())
	r, _, err := MakeRequest(Pair{Certificate: certPEM(c.leaf(asking, key)), Key: keyPEM(pkcs8, key)}, false, rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(r.Text())
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := ParseRequest(text)
		if err == nil && (!bytes.Equal(got.Old.Raw, r.Old.Raw) || !bytes.Equal(got.New.Raw, r.New.Raw)) {
			t.Errorf("somebody made %s", text)
		}
	})
}
