// SPDX-License-Identifier: Apache-2.0

// Package testpki makes certificates for tests, the demo and the benchmarks: throw-away authorities
// and whatever they issue, with real keys, in memory.
//
// It owns no file and holds no state. It judges nothing: what is asked for is signed, an expired or
// malformed certificate included, because refusing those is what the tests are about. Nothing here
// is fit for use outside tests: keys are neither protected nor wiped.
//
// Every function panics where it cannot do its work, which takes a template that crypto/x509
// refuses; a test has no better answer to that.
//
// Sources: RFC 5280 (profile), RFC 7468 (textual encodings).
package testpki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"time"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/must"
)

// Algorithm is the kind of key that an authority has and gives to what it issues.
type Algorithm int

// ECDSA is P-256 and made in well under a millisecond; RSA has 2048 bits, as kubeadm and OpenShift
// make them, and takes a tenth of a second.
const (
	ECDSA Algorithm = iota
	RSA
)

// Lifetime is how long a certificate is valid whose template does not say.
const Lifetime = 24 * time.Hour

// Authority is a self-signed CA and its key.
type Authority struct {
	Cert *x509.Certificate
	Key  crypto.Signer
	alg  Algorithm
}

// NewCA makes an authority with the given common name and returns its certificate in PEM, for tests
// that need trust anchors and nothing signed by them. Two calls with one name give two certificates.
func NewCA(cn string) []byte { return New(cn, ECDSA).PEM() }

// Bundle is NewCA for several names, concatenated in their order.
func Bundle(cns ...string) (b []byte) {
	for _, cn := range cns {
		b = append(b, NewCA(cn)...)
	}
	return b
}

// New makes an authority with the given common name that is valid for a Lifetime.
func New(cn string, alg Algorithm) *Authority {
	return NewFrom(x509.Certificate{Subject: pkix.Name{CommonName: cn}}, alg)
}

// NewFrom makes an authority from a template. Dates, key usage and (by crypto/x509) the serial number
// are filled in where they are zero; that it is a CA is set in any case.
func NewFrom(template x509.Certificate, alg Algorithm) *Authority {
	template.IsCA, template.BasicConstraintsValid = true, true
	if template.KeyUsage == 0 {
		template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature
	}
	return selfSigned(template, newKey(alg), alg)
}

// Renew makes another certificate with the given common name for the same key, which is quick for
// RSA, too. The two verify each other's leaves only if their names are the same.
func (a *Authority) Renew(cn string) *Authority {
	return selfSigned(x509.Certificate{Subject: pkix.Name{CommonName: cn}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: a.Cert.KeyUsage}, a.Key, a.alg)
}

func selfSigned(template x509.Certificate, key crypto.Signer, alg Algorithm) *Authority {
	fill(&template)
	return &Authority{Cert: sign(&template, &template, key.Public(), key), Key: key, alg: alg}
}

// PEM is the authority's certificate.
func (a *Authority) PEM() []byte { return certPEM(a.Cert) }

// KeyPEM is the authority's private key in PKCS #8.
func (a *Authority) KeyPEM() []byte { return keyPEM(a.Key) }

// Issue signs a leaf with a new key of the authority's kind. Dates, serial number and key usage
// (digital signature) are filled in where they are zero.
func (a *Authority) Issue(template x509.Certificate) Pair {
	if template.KeyUsage == 0 {
		template.KeyUsage = x509.KeyUsageDigitalSignature
	}
	fill(&template)
	key := newKey(a.alg)
	return Pair{Cert: certPEM(sign(&template, a.Cert, key.Public(), a.Key)), Key: keyPEM(key)}
}

// Client issues a client certificate as Kubernetes reads them: the common name is the user, the
// organisations are the groups.
func (a *Authority) Client(user string, groups ...string) Pair {
	return a.Issue(x509.Certificate{Subject: pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
}

// Pair is a leaf certificate and its private key (PKCS #8), both in PEM.
type Pair struct{ Cert, Key []byte }

// TLS is the pair as crypto/tls wants it.
func (p Pair) TLS() tls.Certificate {
	c, err := tls.X509KeyPair(p.Cert, p.Key)
	must.OK(err)
	return c
}

// fill sets what a template leaves to us. NotBefore lies a minute back for peers whose clock is slow.
func fill(t *x509.Certificate) {
	if t.NotBefore.IsZero() {
		t.NotBefore = time.Now().Add(-time.Minute)
	}
	if t.NotAfter.IsZero() {
		t.NotAfter = time.Now().Add(Lifetime)
	}
}

func newKey(alg Algorithm) (key crypto.Signer) {
	var err error
	if alg == RSA {
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	} else {
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	must.OK(err)
	return key
}

func sign(template, parent *x509.Certificate, public crypto.PublicKey, key crypto.Signer) *x509.Certificate {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	must.OK(err)
	cert, err := x509.ParseCertificate(der)
	must.OK(err)
	return cert
}

func certPEM(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

func keyPEM(key crypto.Signer) []byte {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	must.OK(err)
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}
