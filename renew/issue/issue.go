// SPDX-License-Identifier: Apache-2.0

// Package issue makes the successor of a leaf certificate: the same subject and the same extensions, a new
// serial number, new dates and, unless the old one is to be reused, a new key of the same kind and size. It
// is pure but for the source of random bytes that it is given.
//
// Subject and extensions are copied as bytes, so that no form of a name is lost. What depends on keys is made
// anew: the subject's key identifier if there was one, and the authority's. What a transparency log promised
// was for the old certificate, and is dropped. `kubeadm certs renew` builds the certificate from a
// configuration: it keeps of the subject only common name and organizations, of the alternative names only
// DNS and IP, loses other extensions, and makes of every key an RSA key of 2048 bits (unless its
// configuration says another kind for all).
//
// It promises that nothing else differs (Same), that the successor lies within its CA's life, chains to that CA
// and has the key that comes with it; all of this is checked on the bytes that were made. It refuses, with
// a Reason, whatever leaves a doubt. No error holds a byte of a key.
//
// Sources: RFC 5280 4.1.2 and 4.2; RFC 6962 3.1 and 3.3 (poison, SCT list); RFC 5208, 5915, 8017 A.1.2 (forms of
// keys); crypto/x509 CreateCertificate; kubeadm app/phases/certs/renewal/manager.go, certToConfig.
package issue

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/secret"
)

// Pair is a leaf certificate and its private key, each as PEM, as their files hold them.
type Pair struct {
	// Certificate is the leaf, and after it what else the server sends of its chain.
	Certificate []byte
	Key         secret.Bytes
}

// Order says of what a successor is wanted, and who signs it.
type Order struct {
	Old Pair
	// CA holds one or more certificates as PEM: the one that signed the old leaf and has CAKey is used.
	CA    []byte
	CAKey secret.Bytes // PEM
	Now   time.Time
	// Lifetime is how long the successor lives from Now on; 0 is as long as the old one from its begin to its
	// end, but no more than a year from Now on. In no case does it outlive its CA.
	Lifetime time.Duration
	// ReuseKey keeps the old key.
	ReuseKey bool
}

// Successor is a new pair, and its leaf parsed.
type Successor struct {
	Pair
	Leaf *x509.Certificate
}

// Successor makes the new pair. The error matches *Refusal unless the source of random bytes failed.
func (o Order) Successor(random io.Reader) (Successor, error) {
	old, err := parseChain(o.Old.Certificate)
	if err != nil {
		return Successor{}, refuse(Unreadable, "certificate %v", err)
	}
	key, err := parseKey(o.Old.Key)
	if err != nil {
		return Successor{}, refuse(Unreadable, "key %v", err)
	}
	ca, err := o.authority(old[0])
	if err != nil {
		return Successor{}, err
	}
	p := proposal{old: old[0], ca: ca.certificate, now: o.Now, lifetime: o.Lifetime}
	if err := p.check(); err != nil {
		return Successor{}, err
	}
	if !matches(key.signer.Public(), old[0]) {
		return Successor{}, refuse(NoPair, "the key is not the certificate's")
	}
	if !o.ReuseKey {
		if key.signer, err = makeKey(old[0].PublicKey, random); err != nil {
			return Successor{}, err
		}
	}
	der, err := p.sign(key.signer.Public(), ca.signer, random)
	if err != nil {
		return Successor{}, fmt.Errorf("sign: %w", err)
	}
	return p.finish(der, old, key)
}

// finish encodes a signed certificate and its key, and checks that what was encoded is what was wanted.
func (p proposal) finish(der []byte, old []*x509.Certificate, key keyFile) (s Successor, err error) {
	var text bytes.Buffer
	if err := pem.Encode(&text, &pem.Block{Type: certificateBlock, Bytes: der}); err != nil {
		return s, err
	}
	for _, c := range old[1:] {
		if err := pem.Encode(&text, &pem.Block{Type: certificateBlock, Bytes: c.Raw}); err != nil {
			return s, err
		}
	}
	s.Certificate = text.Bytes()
	if s.Key, err = key.encode(); err != nil {
		return s, err
	}
	made, err := parseChain(s.Certificate)
	if err != nil {
		return s, refuse(Differs, "certificate %v", err)
	}
	again, err := parseKey(s.Key)
	if err != nil {
		return s, refuse(Differs, "key %v", err)
	}
	if err := p.verify(made[0], again.signer.Public()); err != nil {
		return Successor{}, err
	}
	s.Leaf = made[0]
	return s, nil
}

// verify says why a certificate is not the successor.
func (p proposal) verify(leaf *x509.Certificate, key crypto.PublicKey) error {
	from, to := p.dates()
	if differs := Same(p.old, leaf); len(differs) > 0 {
		return refuse(Differs, "in %s", joined(differs))
	}
	switch {
	case !matches(key, leaf):
		return refuse(Differs, "its key is another")
	case !leaf.NotBefore.Equal(from) || !leaf.NotAfter.Equal(to):
		return refuse(Differs, "its dates are others")
	}
	roots := x509.NewCertPool()
	roots.AddCert(p.ca)
	_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: p.now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	if err != nil {
		return refuse(Differs, "it does not verify: %v", err)
	}
	return nil
}
