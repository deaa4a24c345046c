// SPDX-License-Identifier: Apache-2.0

package pair

import (
	"bytes"
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"

	"github.com/node-cert-agent/node-cert-agent/agent/printable"
)

// Certificate is the first one of PEM text, with the others behind it left aside: that is what servers show. Text
// without one is an error.
func Certificate(text []byte) (*x509.Certificate, error) {
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			return nil, errors.New("holds no certificate")
		}
		if text = rest; block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, errors.New("holds a certificate that cannot be read")
		}
		return c, nil
	}
}

// Certificates are all that PEM text holds; what cannot be read is left out.
func Certificates(text []byte) (all []*x509.Certificate) {
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			return all
		}
		text = rest
		if c, err := x509.ParseCertificate(block.Bytes); err == nil && block.Type == "CERTIFICATE" {
			all = append(all, c)
		}
	}
}

// KeyOf is the public half of a private key in PEM text, or an error without content. Where the text holds a
// certificate as well, as a kubelet's file does, that is passed over.
func KeyOf(text []byte) (crypto.PublicKey, error) {
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			return nil, errors.New("holds no private key that can be read")
		}
		if text = rest; block.Type == "CERTIFICATE" {
			continue
		}
		for _, parse := range []func([]byte) (any, error){
			x509.ParsePKCS8PrivateKey,
			func(der []byte) (any, error) { return x509.ParsePKCS1PrivateKey(der) },
			func(der []byte) (any, error) { return x509.ParseECPrivateKey(der) },
		} {
			if key, err := parse(block.Bytes); err == nil {
				if signer, ok := key.(crypto.Signer); ok {
					return signer.Public(), nil
				}
			}
		}
	}
}

// PublicKey is that of a certificate in DER.
func PublicKey(der []byte) (crypto.PublicKey, error) {
	c, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, errors.New("a certificate that cannot be read")
	}
	return c.PublicKey, nil
}

// SameKey reports whether two public keys are one.
func SameKey(a, b crypto.PublicKey) bool {
	k, ok := a.(interface{ Equal(crypto.PublicKey) bool })
	return ok && k.Equal(b)
}

// Opened is an Authority with what its files hold: certificates, and the public half of a key that is there.
type Opened struct {
	Path, KeyPath string
	Certs         []*x509.Certificate
	Key           crypto.PublicKey
}

// Examine reads a leaf and finds the authority that signed it. Key is the public half of the pair's key; nil says
// that it could not be read, for the reason in f.Problem.
func (f *Facts) Examine(leaf *x509.Certificate, key crypto.PublicKey, authorities []Opened) {
	f.Leaf = Describe(leaf)
	if f.Problem == "" && !SameKey(leaf.PublicKey, key) {
		f.Problem = "certificate and key do not belong together"
	}
	for _, a := range authorities {
		for _, c := range a.Certs {
			if !bytes.Equal(c.RawSubject, leaf.RawIssuer) || leaf.CheckSignatureFrom(c) != nil {
				continue
			}
			ca := &CA{Path: a.Path, Subject: printable.Text(c.Subject.String()), SHA256: fingerprint(c),
				NotAfter: c.NotAfter.UTC(), KeyHere: SameKey(c.PublicKey, a.Key), KeyPath: a.KeyPath}
			if f.CA == nil || ca.KeyHere && !f.CA.KeyHere {
				f.CA = ca
			}
		}
	}
}

// Describe says what a certificate says, in text that is fit to be printed.
func Describe(c *x509.Certificate) Leaf {
	return Leaf{Subject: printable.Text(c.Subject.String()), Issuer: printable.Text(c.Issuer.String()),
		Serial: c.SerialNumber.Text(16), SHA256: fingerprint(c), NotBefore: c.NotBefore.UTC(), NotAfter: c.NotAfter.UTC()}
}

func fingerprint(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:])
}
