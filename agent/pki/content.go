// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"slices"

	"github.com/node-cert-agent/node-cert-agent/agent/printable"
)

// Content is what certificates lie in a file, whoever wrote it.
type Content struct {
	// Certs holds each certificate that can be read once, in the order of first appearance.
	Certs []Cert
	// Whole is set if Parse takes the file as it is. Otherwise Certs are what can be salvaged.
	Whole bool
}

// Read looks for certificates in a file on disk. Unlike Parse it judges nothing and gives up on
// nothing: trust that can still be read in a damaged file must not be lost with it.
func Read(data []byte) Content {
	if b, err := Parse(data, Options{AllowLeaf: true}); err == nil {
		return Content{Certs: b.Certs, Whole: true}
	}
	var c Content
	seen := make(map[Fingerprint]bool)
	for len(c.Certs) < MaxCerts {
		// pem.Decode skips what it cannot decode up to the next block that it can.
		block, rest := pem.Decode(data)
		if block == nil {
			break
		}
		data = rest
		if x, err := readCertificate(block.Bytes); err == nil && block.Type == "CERTIFICATE" {
			if fp := Fingerprint(sha256.Sum256(block.Bytes)); !seen[fp] {
				seen[fp] = true
				c.Certs = append(c.Certs, facts(x, fp, appendPEM(nil, block.Bytes)))
			}
		}
	}
	return c
}

// facts keeps of a certificate what Cert holds.
func facts(c *x509.Certificate, fp Fingerprint, block []byte) Cert {
	return Cert{Fingerprint: fp, Subject: printable.Text(c.Subject.String()), NotBefore: c.NotBefore, NotAfter: c.NotAfter,
		CA: c.BasicConstraintsValid && c.IsCA, block: block}
}

// SetDigest identifies a set of certificates, in whatever order.
func SetDigest(certs []Cert) Fingerprint {
	all := make([]Fingerprint, len(certs))
	for i, c := range certs {
		all[i] = c.Fingerprint
	}
	slices.SortFunc(all, func(a, b Fingerprint) int { return bytes.Compare(a[:], b[:]) })
	h := sha256.New()
	for _, fp := range all {
		h.Write(fp[:])
	}
	return Fingerprint(h.Sum(nil))
}
