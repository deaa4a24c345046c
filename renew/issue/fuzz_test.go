// SPDX-License-Identifier: Apache-2.0

package issue

import (
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"testing"
)

// FuzzOldLeaf reads whatever stands in the place of a certificate.
func FuzzOldLeaf(f *testing.F) {
	c, key := newCA(ecKey(elliptic.P256())), ecKey(elliptic.P256())
	for _, template := range leaves() {
		f.Add(certPEM(c.leaf(template, key)))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		o := c.order(c.cert, key)
		o.Old.Certificate = text
		succeeds(t, o)
	})
}

// FuzzSignedLeaf gives a genuine signature to a subject and an extension of any content.
func FuzzSignedLeaf(f *testing.F) {
	c, key := newCA(ecKey(elliptic.P256())), ecKey(elliptic.P256())
	f.Add(der(pkix.Name{CommonName: "a"}.ToRDNSequence()), 17, otherNames().Value, false)
	f.Add([]byte{}, 14, []byte{4, 1, 1}, true)
	f.Add([]byte{0x30, 0}, 35, []byte{0x30, 0}, false)
	f.Fuzz(func(t *testing.T, subject []byte, id int, value []byte, critical bool) {
		template := &x509.Certificate{RawSubject: subject, NotBefore: now.Add(-day), NotAfter: now.Add(day),
			ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, id & 0xff}, Critical: critical, Value: value}}}
		raw, err := x509.CreateCertificate(rand.Reader, template, c.cert, key.Public(), c.key)
		if err != nil {
			return
		}
		o := c.order(c.cert, key)
		o.Old.Certificate = certPEM(&x509.Certificate{Raw: raw})
		succeeds(t, o)
	})
}

func succeeds(t *testing.T, o Order) {
	s, err := o.Successor(rand.Reader)
	if err != nil {
		return
	}
	old, err := parseChain(o.Old.Certificate)
	if err != nil || len(Same(old[0], s.Leaf)) > 0 || s.Leaf.IsCA || s.Leaf.CheckSignatureFrom(must(parseChain(o.CA))[0]) != nil {
		t.Errorf("%v of %v, %v", s.Leaf, old, err)
	}
}
