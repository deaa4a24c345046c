// SPDX-License-Identifier: Apache-2.0

package issue

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/secret"
)

var now = time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)

const day = 24 * time.Hour

// ca is one that signs leaves for the tests.
type ca struct {
	cert *x509.Certificate
	key  crypto.Signer
}

func ecKey(c elliptic.Curve) crypto.Signer { return must(ecdsa.GenerateKey(c, rand.Reader)) }

// rsaKey is made once for each size, because that takes long.
func rsaKey(bits int) crypto.Signer {
	rsaKeys.Lock()
	defer rsaKeys.Unlock()
	if rsaKeys.made[bits] == nil {
		rsaKeys.made[bits] = must(rsa.GenerateKey(rand.Reader, bits))
	}
	return rsaKeys.made[bits]
}

var rsaKeys = struct {
	sync.Mutex
	made map[int]crypto.Signer
}{made: map[int]crypto.Signer{}}

func edKey() crypto.Signer {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	return must(key, err)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// newCA makes a CA that lives for nine more years, unless the template says otherwise.
func newCA(key crypto.Signer, change ...func(*x509.Certificate)) ca {
	t := &x509.Certificate{Subject: pkix.Name{CommonName: "kubernetes"}, NotBefore: now.Add(-365 * day),
		NotAfter: now.Add(9 * 365 * day), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	for _, f := range change {
		f(t)
	}
	return ca{cert: must(x509.ParseCertificate(must(x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)))), key: key}
}

func (c ca) leaf(t x509.Certificate, key crypto.Signer) *x509.Certificate {
	if t.Subject.CommonName == "" && t.RawSubject == nil {
		t.Subject.CommonName = "leaf"
	}
	if t.NotBefore.IsZero() {
		t.NotBefore = now.Add(-335 * day)
	}
	if t.NotAfter.IsZero() {
		t.NotAfter = now.Add(30 * day)
	}
	t.SerialNumber = big.NewInt(7)
	return must(x509.ParseCertificate(must(x509.CreateCertificate(rand.Reader, &t, c.cert, key.Public(), c.key))))
}

func certPEM(all ...*x509.Certificate) (text []byte) {
	for _, c := range all {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: c.Raw})...)
	}
	return text
}

func keyPEM(form string, key crypto.Signer) secret.Bytes {
	return must(keyFile{signer: key, form: form}.encode())
}

// order is one for the successor of a leaf.
func (c ca) order(leaf *x509.Certificate, key crypto.Signer) Order {
	return Order{Old: Pair{Certificate: certPEM(leaf), Key: keyPEM(pkcs8, key)}, CA: certPEM(c.cert),
		CAKey: keyPEM(pkcs8, c.key), Now: now}
}

func ext(id asn1.ObjectIdentifier, value []byte) pkix.Extension {
	return pkix.Extension{Id: id, Value: value}
}

func der(v any) []byte { return must(asn1.Marshal(v)) }

// otherNames are alternative names of the kinds that no library builds: otherName, directoryName, registeredID.
func otherNames() pkix.Extension {
	name := func(tag int, compound bool, b []byte) asn1.RawValue {
		return asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: tag, IsCompound: compound, Bytes: b}
	}
	upn := append(der(asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 311, 20, 2, 3}),
		der(name(0, true, der(asn1.RawValue{Tag: asn1.TagUTF8String, Bytes: []byte("a@example.test")})))...)
	dir := der(pkix.Name{CommonName: "directory", Country: []string{"CH"}}.ToRDNSequence())
	return ext(asn1.ObjectIdentifier{2, 5, 29, 17}, der([]asn1.RawValue{name(2, false, []byte("a.example.test")),
		name(0, true, upn), name(4, true, dir), name(8, false, []byte{42, 3, 4})}))
}

// leaves are the rows of what was renewed: whatever they hold, the successor holds it, too.
func leaves() map[string]x509.Certificate {
	private := asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 99999, 1}
	return map[string]x509.Certificate{
		"kubeadm's server": {Subject: pkix.Name{CommonName: "kube-apiserver"}, DNSNames: []string{"kubernetes", "kubernetes.default"},
			IPAddresses: []net.IP{net.IPv4(10, 96, 0, 1), net.ParseIP("fd00::1")}, BasicConstraintsValid: true,
			KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}},
		"kubeadm's client": {Subject: pkix.Name{CommonName: "kubernetes-admin", Organization: []string{"kubeadm:cluster-admins"}},
			BasicConstraintsValid: true, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}},
		"etcdadm's, which begins with its CA": {NotBefore: now.Add(-365 * day), Subject: pkix.Name{CommonName: "etcd"},
			DNSNames: []string{"localhost"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}},
		"a subject with more": {Subject: pkix.Name{CommonName: "x", Country: []string{"CH"}, OrganizationalUnit: []string{"a", "b"},
			Locality: []string{"Zürich"}, SerialNumber: "7"}},
		"an empty subject":       {RawSubject: der(pkix.RDNSequence{}), DNSNames: []string{"a"}},
		"URI and e-mail":         {URIs: []*url.URL{must(url.Parse("spiffe://example.test/a"))}, EmailAddresses: []string{"a@example.test"}},
		"names of unusual kinds": {ExtraExtensions: []pkix.Extension{otherNames()}},
		"a private extension":    {ExtraExtensions: []pkix.Extension{ext(private, []byte{4, 1, 7})}},
		"policies and places": {PolicyIdentifiers: []asn1.ObjectIdentifier{{1, 2, 3}}, CRLDistributionPoints: []string{"http://a.test/crl"},
			OCSPServer: []string{"http://a.test/ocsp"}, IssuingCertificateURL: []string{"http://a.test/ca"}},
		"a key identifier": {SubjectKeyId: []byte{1, 2, 3}},
		"for signatures only": {KeyUsage: x509.KeyUsageDigitalSignature,
			UnknownExtKeyUsage: []asn1.ObjectIdentifier{{1, 3, 6, 1, 4, 1, 99999, 2}}},
	}
}

func TestASuccessorDiffersInSerialDatesAndKeyOnly(t *testing.T) {
	for kind, key := range map[string]struct{ ca, leaf crypto.Signer }{
		"P-256": {ecKey(elliptic.P256()), ecKey(elliptic.P256())}, "P-384": {ecKey(elliptic.P384()), ecKey(elliptic.P384())},
		"P-224 of P-521": {ecKey(elliptic.P521()), ecKey(elliptic.P224())}, "P-521": {ecKey(elliptic.P256()), ecKey(elliptic.P521())},
		"Ed25519": {edKey(), edKey()}, "P-256 of RSA": {rsaKey(2048), ecKey(elliptic.P256())},
	} {
		c := newCA(key.ca)
		for sentence, template := range leaves() {
			t.Run(kind+"/"+sentence, func(t *testing.T) {
				old := c.leaf(template, key.leaf)
				s, err := c.order(old, key.leaf).Successor(rand.Reader)
				if err != nil {
					t.Fatal(err)
				}
				wanted(t, old, s)
				if pub, ok := key.leaf.Public().(interface{ Equal(crypto.PublicKey) bool }); !ok || pub.Equal(s.Leaf.PublicKey) {
					t.Error("the key is the old one")
				}
			})
		}
	}
}

// wanted compares by other means than Same.
func wanted(t *testing.T, old *x509.Certificate, s Successor) {
	t.Helper()
	if _, err := tls.X509KeyPair(s.Certificate, s.Key.Reveal()); err != nil {
		t.Error(err)
	}
	if got := s.Leaf.SerialNumber; got.Cmp(old.SerialNumber) == 0 || got.BitLen() < 120 { // of 159; less is a matter of chance
		t.Errorf("serial number %v", got)
	}
	to := now.Add(365 * day)
	if life := old.NotAfter.Sub(old.NotBefore); life < 365*day {
		to = now.Add(life - 5*time.Minute)
	}
	if !s.Leaf.NotAfter.Equal(to) ||
		!s.Leaf.NotBefore.Equal(now.Add(-5*time.Minute)) {
		t.Errorf("from %v to %v", s.Leaf.NotBefore, s.Leaf.NotAfter)
	}
	if !bytes.Equal(old.RawSubject, s.Leaf.RawSubject) || len(old.Extensions) != len(s.Leaf.Extensions) {
		t.Fatalf("subject %s, %d extensions; want %s and %d", s.Leaf.Subject, len(s.Leaf.Extensions), old.Subject, len(old.Extensions))
	}
	for i, e := range old.Extensions {
		if f := s.Leaf.Extensions[i]; !e.Id.Equal(subjectKeyID) && fmt.Sprint(e) != fmt.Sprint(f) {
			t.Errorf("extension %v became %v", e, f)
		} else if e.Id.Equal(subjectKeyID) && bytes.Equal(e.Value, f.Value) {
			t.Error("the key identifier is the old one")
		}
	}
	if s.Leaf.SignatureAlgorithm != old.SignatureAlgorithm {
		t.Errorf("signed with %v, want %v", s.Leaf.SignatureAlgorithm, old.SignatureAlgorithm)
	}
	if differs := Same(old, s.Leaf); len(differs) > 0 {
		t.Errorf("differs in %v", differs)
	}
}

func TestKindAndFormOfTheKeyAreKept(t *testing.T) {
	c := newCA(ecKey(elliptic.P256()))
	for form, key := range map[string]crypto.Signer{pkcs1: rsaKey(2048), sec1: ecKey(elliptic.P384()), pkcs8: edKey()} {
		for _, reuse := range []bool{false, true} {
			old := c.leaf(x509.Certificate{}, key)
			o := c.order(old, key)
			o.Old.Key, o.ReuseKey = keyPEM(form, key), reuse
			s, err := o.Successor(rand.Reader)
			if err != nil {
				t.Fatal(err)
			}
			if b, _ := pem.Decode(s.Key.Reveal()); b.Type != form {
				t.Errorf("%s became %s", form, b.Type)
			}
			if reuse != bytes.Equal(s.Key.Reveal(), o.Old.Key.Reveal()) {
				t.Errorf("%s, reuse %t: the file is the old one: %t", form, reuse, !reuse)
			}
		}
	}
	short := rsaKey(1024)
	s, err := c.order(c.leaf(x509.Certificate{}, short), short).Successor(rand.Reader)
	if err != nil || s.Leaf.PublicKey.(*rsa.PublicKey).N.BitLen() != 2048 {
		t.Errorf("of 1024 bits became %v, %v", s.Leaf, err)
	}
}

func TestParametersBeforeAKeyStay(t *testing.T) {
	c, key := newCA(ecKey(elliptic.P256())), ecKey(elliptic.P256())
	o := c.order(c.leaf(x509.Certificate{}, key), key)
	before := pem.EncodeToMemory(&pem.Block{Type: parametersBlock, Bytes: der(asn1.ObjectIdentifier{1, 2, 840, 10045, 3, 1, 7})})
	o.Old.Key = secret.New(append(before, keyPEM(sec1, key).Reveal()...))
	s, err := o.Successor(rand.Reader)
	if err != nil || !bytes.HasPrefix(s.Key.Reveal(), before) {
		t.Errorf("they are gone, %v", err)
	}
}

func TestWhatALogPromisedIsDropped(t *testing.T) {
	c, key := newCA(ecKey(elliptic.P256())), ecKey(elliptic.P256())
	old := c.leaf(x509.Certificate{ExtraExtensions: []pkix.Extension{ext(sctList, []byte{4, 1, 1})}}, key)
	s, err := c.order(old, key).Successor(rand.Reader)
	if err != nil || has(s.Leaf, sctList) || len(s.Leaf.Extensions) != len(old.Extensions)-1 {
		t.Errorf("%v, %v", s.Leaf, err)
	}
}

func TestTheAuthoritysKeyIdentifierIsTheCAsOrStaysAway(t *testing.T) {
	key := ecKey(elliptic.P256())
	a, b := newCA(key), newCA(key, func(c *x509.Certificate) { c.SubjectKeyId = []byte{9, 9} })
	leaf := ecKey(elliptic.P256())
	for sentence, tt := range map[string]struct {
		old  *x509.Certificate
		want string
	}{
		"there was that of another certificate of the CA": {a.leaf(x509.Certificate{}, leaf), "\x09\x09"},
		"there was none": {ca{cert: withoutID(a.cert), key: key}.leaf(x509.Certificate{}, leaf), ""},
	} {
		s, err := b.order(tt.old, leaf).Successor(rand.Reader)
		if err != nil || string(s.Leaf.AuthorityKeyId) != tt.want {
			t.Errorf("%s: %x, %v", sentence, s.Leaf.AuthorityKeyId, err)
		}
	}
}

func withoutID(c *x509.Certificate) *x509.Certificate {
	without := *c
	without.SubjectKeyId = nil
	return &without
}

func TestTheSignatureAlgorithmIsKeptIfItIsFit(t *testing.T) {
	key := ecKey(elliptic.P256())
	for sentence, tt := range map[string]struct {
		ca        crypto.Signer
		old, want x509.SignatureAlgorithm
	}{
		"SHA-384":     {ecKey(elliptic.P256()), x509.ECDSAWithSHA384, x509.ECDSAWithSHA384},
		"SHA-512":     {rsaKey(2048), x509.SHA512WithRSA, x509.SHA512WithRSA},
		"PSS":         {rsaKey(2048), x509.SHA384WithRSAPSS, x509.SHA384WithRSAPSS},
		"the usual":   {rsaKey(2048), x509.SHA256WithRSA, x509.SHA256WithRSA},
		"none chosen": {ecKey(elliptic.P384()), x509.UnknownSignatureAlgorithm, x509.ECDSAWithSHA384},
	} {
		c := newCA(tt.ca)
		s, err := c.order(c.leaf(x509.Certificate{SignatureAlgorithm: tt.old}, key), key).Successor(rand.Reader)
		if err != nil || s.Leaf.SignatureAlgorithm != tt.want {
			t.Errorf("%s: %v, %v", sentence, s.Leaf, err)
		}
	}
}

func TestTheDatesAreWithinTheCAs(t *testing.T) {
	key, signer := ecKey(elliptic.P256()), ecKey(elliptic.P256())
	young := newCA(signer, func(c *x509.Certificate) { c.NotBefore = now.Add(-time.Minute) })
	dying := newCA(signer, func(c *x509.Certificate) { c.NotAfter = now.Add(60 * day) })
	usual := newCA(signer)
	for sentence, tt := range map[string]struct {
		ca       ca
		old      x509.Certificate
		lifetime time.Duration
		from, to time.Duration
	}{
		"as long as before":   {usual, x509.Certificate{NotBefore: now.Add(-60 * day)}, 0, -5 * time.Minute, 90*day - 5*time.Minute},
		"no more than a year": {usual, x509.Certificate{NotBefore: now.Add(-9000 * day)}, 0, -5 * time.Minute, 365 * day},
		"a short life": {usual, x509.Certificate{NotBefore: now.Add(-9 * time.Minute), NotAfter: now.Add(time.Minute)}, 0,
			-time.Minute, 9 * time.Minute},
		"as configured":        {usual, x509.Certificate{}, 40 * day, -5 * time.Minute, 40 * day},
		"an expired one":       {usual, x509.Certificate{NotAfter: now.Add(-day)}, time.Hour, -5 * time.Minute, time.Hour},
		"not before the CA":    {young, x509.Certificate{NotBefore: now.Add(-time.Minute)}, 40 * day, -time.Minute, 40 * day},
		"not longer than it":   {dying, x509.Certificate{}, 0, -5 * time.Minute, 60 * day},
		"whatever is demanded": {dying, x509.Certificate{}, 9999 * day, -5 * time.Minute, 60 * day},
	} {
		o := tt.ca.order(tt.ca.leaf(tt.old, key), key)
		o.Lifetime = tt.lifetime
		s, err := o.Successor(rand.Reader)
		if err != nil || !s.Leaf.NotBefore.Equal(now.Add(tt.from)) || !s.Leaf.NotAfter.Equal(now.Add(tt.to)) {
			t.Errorf("%s: %+v, %v", sentence, s.Leaf, err)
		}
	}
}

func TestWhatFollowsTheLeafInItsFileStays(t *testing.T) {
	c, key := newCA(ecKey(elliptic.P256())), ecKey(elliptic.P256())
	old := c.leaf(x509.Certificate{}, key)
	o := c.order(old, key)
	o.Old.Certificate = append([]byte("Certificate:\n    words of openssl\n"), certPEM(old, c.cert)...)
	s, err := o.Successor(rand.Reader)
	if err != nil || !bytes.HasSuffix(s.Certificate, certPEM(c.cert)) || !bytes.HasPrefix(s.Certificate, []byte("-----BEGIN")) {
		t.Errorf("%s, %v", s.Certificate, err)
	}
}

func TestOfSeveralCAsTheOneThatSignedAndHasTheKeyIsUsed(t *testing.T) {
	one, two, key := ecKey(elliptic.P256()), ecKey(elliptic.P256()), ecKey(elliptic.P256())
	a, b := newCA(one), newCA(two)
	over := newCA(one, func(c *x509.Certificate) { c.NotAfter = now.Add(-time.Hour) })
	longer := newCA(one, func(c *x509.Certificate) { c.NotAfter = now.Add(20 * 365 * day) })
	old := a.leaf(x509.Certificate{}, key)
	for sentence, bundle := range map[string][]*x509.Certificate{
		"the only": {a.cert}, "the second": {b.cert, a.cert}, "the first": {a.cert, b.cert},
		"not the one that is over": {over.cert, a.cert}, "that is over, first": {a.cert, over.cert},
	} {
		o := a.order(old, key)
		o.CA = certPEM(bundle...)
		if s, err := o.Successor(rand.Reader); err != nil || s.Leaf.CheckSignatureFrom(a.cert) != nil {
			t.Errorf("%s: %v", sentence, err)
		}
	}
	o := a.order(old, key)
	o.CA, o.Lifetime = certPEM(a.cert, longer.cert, over.cert), 15*365*day
	if s, err := o.Successor(rand.Reader); err != nil || !s.Leaf.NotAfter.Equal(now.Add(15*365*day)) {
		t.Errorf("the one that ends last was not used: %v", err)
	}
}

func TestNothingIsMadeInDoubt(t *testing.T) {
	c, other, key := newCA(ecKey(elliptic.P256())), newCA(ecKey(elliptic.P256())), ecKey(elliptic.P256())
	named := newCA(c.key, func(t *x509.Certificate) { t.Subject.CommonName = "another" })
	over := newCA(c.key, func(t *x509.Certificate) { t.NotAfter = now })
	next := newCA(c.key, func(t *x509.Certificate) { t.NotBefore = now.Add(time.Minute) })
	ends := newCA(c.key, func(t *x509.Certificate) { t.NotAfter = now.Add(30 * day) })
	noCA := newCA(c.key, func(t *x509.Certificate) { t.IsCA = false })
	old := c.leaf(x509.Certificate{}, key)
	critical := pkix.Extension{Id: asn1.ObjectIdentifier{1, 3, 9}, Critical: true, Value: []byte{5, 0}}
	of := func(leaf *x509.Certificate) func(*Order) {
		return func(o *Order) { o.Old.Certificate = certPEM(leaf) }
	}
	under := func(c ca) func(*Order) {
		return func(o *Order) { o.CA, o.CAKey = certPEM(c.cert), keyPEM(pkcs8, c.key) }
	}
	for sentence, tt := range map[string]struct {
		change func(*Order)
		want   Reason
	}{
		"a CA":                    {of(c.leaf(x509.Certificate{IsCA: true, BasicConstraintsValid: true}, key)), IsCA},
		"one that may sign":       {of(c.leaf(x509.Certificate{KeyUsage: x509.KeyUsageCertSign}, key)), IsCA},
		"of another CA":           {under(other), ForeignCA},
		"of another name":         {under(named), ForeignCA},
		"of what is no CA":        {under(noCA), ForeignCA},
		"with another CA's key":   {func(o *Order) { o.CAKey = keyPEM(pkcs8, other.key) }, ForeignKey},
		"key of the wrong of two": {func(o *Order) { o.CA, o.CAKey = certPEM(c.cert, other.cert), keyPEM(pkcs8, other.key) }, ForeignCA},
		"the CA is over":          {under(over), CAOver},
		"the CA does not begin":   {under(next), ClockBehind},
		"it does not begin":       {of(c.leaf(x509.Certificate{NotBefore: now.Add(time.Second)}, key)), ClockBehind},
		"the CA ends first":       {under(ends), NoGain},
		"it would be shorter":     {func(o *Order) { o.Lifetime = 29 * day }, NoGain},
		"no time at all":          {func(o *Order) { o.Lifetime = -time.Hour }, NoGain},
		"in the past":             {func(o *Order) { of(c.leaf(x509.Certificate{NotAfter: now.Add(-9 * day)}, key))(o); o.Lifetime = -day }, NoGain},
		"another's key":           {func(o *Order) { o.Old.Key = keyPEM(pkcs8, other.key) }, NoPair},
		"another's key, reused":   {func(o *Order) { o.Old.Key, o.ReuseKey = keyPEM(pkcs8, other.key), true }, NoPair},
		"an empty key":            {func(o *Order) { o.Old.Key = secret.Bytes{} }, Unreadable},
		"half a key":              {func(o *Order) { o.Old.Key = secret.New(o.Old.Key.Reveal()[:90]) }, Unreadable},
		"two keys": {func(o *Order) {
			o.Old.Key = secret.New(append(keyPEM(pkcs8, key).Reveal(), keyPEM(sec1, key).Reveal()...))
		}, Unreadable},
		"an encrypted key": {func(o *Order) {
			o.Old.Key = secret.New(pem.EncodeToMemory(&pem.Block{Type: sec1, Headers: map[string]string{"Proc-Type": "4,ENCRYPTED"}, Bytes: []byte{1}}))
		}, Unreadable},
		"no certificate":        {func(o *Order) { o.Old.Certificate = nil }, Unreadable},
		"a key in its file":     {func(o *Order) { o.Old.Certificate = append(certPEM(old), keyPEM(pkcs8, key).Reveal()...) }, Unreadable},
		"a broken certificate":  {func(o *Order) { o.Old.Certificate = certPEM(&x509.Certificate{Raw: old.Raw[:200]}) }, Unreadable},
		"no CA":                 {func(o *Order) { o.CA = nil }, Unreadable},
		"no CA key":             {func(o *Order) { o.CAKey = secret.Bytes{} }, Unreadable},
		"what Go cannot handle": {of(c.leaf(x509.Certificate{ExtraExtensions: []pkix.Extension{critical}}, key)), Differs},
	} {
		t.Run(sentence, func(t *testing.T) {
			o := c.order(old, key)
			tt.change(&o)
			s, err := o.Successor(rand.Reader)
			var r *Refusal
			if !errors.As(err, &r) || r.Reason != tt.want || r.Fact == "" {
				t.Errorf("%v, want %q", err, tt.want)
			}
			if s.Leaf != nil {
				t.Error("and yet one was made")
			}
		})
	}
}

func TestAFailingSourceOfRandomBytesIsSaid(t *testing.T) {
	c, key := newCA(ecKey(elliptic.P256())), edKey()
	o := c.order(c.leaf(x509.Certificate{}, key), key)
	o.ReuseKey = true // keys take theirs from the library
	if _, err := o.Successor(strings.NewReader("short")); err == nil || !strings.HasPrefix(err.Error(), "sign: ") {
		t.Error(err)
	}
}

func TestNoErrorHoldsAByteOfAKey(t *testing.T) {
	c, key := newCA(ecKey(elliptic.P256())), ecKey(elliptic.P256())
	o := c.order(c.leaf(x509.Certificate{}, key), key)
	text := o.Old.Key.Reveal()
	for n := range len(text) {
		for _, change := range []func([]byte) []byte{func(b []byte) []byte { b[n] ^= 1; return b }, func(b []byte) []byte { return b[:n] }} {
			o.Old.Key = secret.New(change(bytes.Clone(text)))
			if _, err := o.Successor(rand.Reader); err != nil && strings.ContainsAny(err.Error(), "+/=") {
				t.Errorf("byte %d: %v", n, err)
			}
		}
	}
}

func TestWhatDiffersIsNamed(t *testing.T) {
	c, key := newCA(ecKey(elliptic.P256())), ecKey(elliptic.P256())
	old := c.leaf(x509.Certificate{DNSNames: []string{"a"}, SubjectKeyId: []byte{1}}, key)
	named := newCA(c.key, func(t *x509.Certificate) { t.Subject.CommonName = "another" })
	for want, second := range map[string]*x509.Certificate{
		"subject": c.leaf(x509.Certificate{Subject: pkix.Name{CommonName: "b"}, DNSNames: []string{"a"}, SubjectKeyId: []byte{1}}, key),
		"issuer":  named.leaf(x509.Certificate{DNSNames: []string{"a"}, SubjectKeyId: []byte{1}}, key),
		"extensions": c.leaf(x509.Certificate{DNSNames: []string{"a"}, SubjectKeyId: []byte{1},
			KeyUsage: x509.KeyUsageKeyEncipherment}, key),
		"subject key identifier": c.leaf(x509.Certificate{DNSNames: []string{"a"}}, key),
		"kind of key":            c.leaf(x509.Certificate{DNSNames: []string{"a"}, SubjectKeyId: []byte{1}}, ecKey(elliptic.P384())),
	} {
		if got := joined(Same(old, second)); got != want {
			t.Errorf("have %q, want %q", got, want)
		}
	}
	v1 := *old
	v1.Version = 1
	without := ca{cert: withoutID(c.cert), key: c.key}.leaf(x509.Certificate{DNSNames: []string{"a"}, SubjectKeyId: []byte{1}}, key)
	if got := joined(append(Same(old, &v1), Same(without, old)...)); got != "version, authority key identifier" {
		t.Errorf("have %q", got)
	}
}
