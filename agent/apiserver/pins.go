// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"slices"
	"strings"
)

// Pins are the keys that a cluster's CA may have, whatever else its certificate says: SHA-256 over the
// SubjectPublicKeyInfo (RFC 7469 section 2.4), written as kubeadm prints them.
type Pins map[[sha256.Size]byte]bool

// ParsePins reads sha256:<hex>. Anything else is the hash of no key and so pins nothing.
func ParsePins(texts []string) Pins {
	p := make(Pins, len(texts))
	for _, t := range texts {
		digest, ok := strings.CutPrefix(t, "sha256:")
		if sum, err := hex.DecodeString(digest); ok && err == nil && len(sum) == sha256.Size {
			p[[sha256.Size]byte(sum)] = true
		}
	}
	return p
}

// Filter gives those of the certificates in PEM that are CAs with a pinned key, nil if there are none.
func (p Pins) Filter(bundle []byte) []byte {
	cas, _ := p.pinned(authorities(bundle))
	return encodePEM(cas)
}

func (p Pins) match(c *x509.Certificate) bool { return p[sha256.Sum256(c.RawSubjectPublicKeyInfo)] }

// pinned gives the CAs with a pinned key, each once, and no other certificate. leaf is set if
// a pin fits a certificate that is no CA.
//
// Anyone can forge a certificate with a pinned key. It verifies nothing: that takes the private key.
func (p Pins) pinned(presented []*x509.Certificate) (cas []*x509.Certificate, leaf bool) {
	seen := make(map[string]bool)
	for _, c := range presented {
		switch {
		case !p.match(c) || seen[string(c.Raw)]:
		case signs(c):
			cas = append(cas, c)
		default:
			leaf = true
		}
		seen[string(c.Raw)] = true
	}
	return cas, leaf
}

// HoldsCA reports whether one of the certificates in PEM may have issued others.
func HoldsCA(bundle []byte) bool { return slices.ContainsFunc(authorities(bundle), signs) }

// signs reports whether a certificate may have issued others. Those of X.509 version 1 do not say.
func signs(c *x509.Certificate) bool { return c.IsCA && c.BasicConstraintsValid || c.Version < 3 }

// authorities parses the certificates in PEM, as far as they can be used.
func authorities(data []byte) (out []*x509.Certificate) {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if c, err := x509.ParseCertificate(block.Bytes); err == nil && block.Type == "CERTIFICATE" {
			out = append(out, c)
		}
	}
	return out
}

func encodePEM(certs []*x509.Certificate) []byte {
	var b bytes.Buffer
	for _, c := range certs {
		b.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}))
	}
	return b.Bytes()
}
