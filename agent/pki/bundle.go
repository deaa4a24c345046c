// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Limits of a bundle. A corporate trust store of 150 certificates is about 250 KiB; a Kubernetes
// object cannot carry much more than 1 MiB.
const (
	MaxBytes = 1 << 20
	MaxCerts = 500
)

// Options say what one row of the host's file table accepts.
type Options struct {
	// AllowLeaf accepts certificates that are not CAs without a word: registries may be trusted by
	// their own self-signed certificate.
	AllowLeaf bool
	// Strict refuses what is otherwise only warned about.
	Strict bool
	// Now judges expiry; the zero time judges nothing as expired.
	Now time.Time
}

// Bundle is a set of certificates that passed Parse.
type Bundle struct {
	// Certs holds each certificate once, in the order of first appearance.
	Certs []Cert
	// Warnings say in a few words each what is questionable, without repeating content.
	Warnings []string
}

var (
	beginMark = []byte("-----BEGIN")
	endMark   = []byte("-----END")
	keyMark   = []byte("PRIVATE KEY-----")
)

// Parse validates a PEM bundle. An error means that the bytes must not reach the disk, and is one
// line fit for the journal: it never repeats what is between the block marks.
//
// Refused are: anything that looks like a private key, a block of another type than CERTIFICATE, a
// block that does not decode or is cut off, more than MaxBytes or MaxCerts, and a bundle in which no
// certificate could anchor trust (none is a CA, self-issued or X.509 v1), unless AllowLeaf.
func Parse(data []byte, opt Options) (Bundle, error) {
	if len(data) > MaxBytes {
		return Bundle{}, fmt.Errorf("%d bytes, more than %d", len(data), MaxBytes)
	}
	if bytes.Contains(data, keyMark) {
		return Bundle{}, errors.New("holds a private key")
	}
	p := parser{opt: opt, seen: make(map[Fingerprint]bool)}
	if bytes.Contains(data, []byte("\r\n")) {
		p.warn("CRLF line ends")
	}
	if err := p.blocks(data); err != nil {
		return Bundle{}, err
	}
	if len(p.certs) == 0 {
		return Bundle{}, errors.New("holds no certificate")
	}
	if !p.anchor && !opt.AllowLeaf {
		return Bundle{}, errors.New("holds no certificate that can anchor trust: none is a CA")
	}
	if opt.Strict && len(p.warnings) > 0 {
		return Bundle{}, errors.New("strict row: " + strings.Join(p.warnings, ", "))
	}
	return Bundle{Certs: p.certs, Warnings: p.warnings}, nil
}

type parser struct {
	opt      Options
	certs    []Cert
	warnings []string
	seen     map[Fingerprint]bool
	anchor   bool
}

// blocks walks the PEM blocks. encoding/pem silently skips a block that it cannot decode, so each
// step also counts the marks in what was consumed: a second BEGIN there was such a block.
func (p *parser) blocks(data []byte) error {
	for n := 1; ; n++ {
		block, rest := pem.Decode(data)
		if block == nil {
			return p.tail(data, n)
		}
		consumed := data[:len(data)-len(rest)]
		start := bytes.Index(consumed, beginMark)
		if bytes.Count(consumed, beginMark) != 1 || bytes.Count(consumed, endMark) != 1 {
			return fmt.Errorf("block %d does not decode or is cut off", n)
		}
		p.outside(consumed[:start])
		if err := p.block(block, consumed[start:]); err != nil {
			return fmt.Errorf("block %d %v", n, err)
		}
		data = rest
	}
}

// tail judges what follows the last block that decoded.
func (p *parser) tail(data []byte, n int) error {
	if bytes.Contains(data, beginMark) || bytes.Contains(data, endMark) {
		return fmt.Errorf("block %d does not decode or is cut off", n)
	}
	p.outside(data)
	return nil
}

func (p *parser) outside(text []byte) {
	if len(bytes.TrimSpace(text)) > 0 {
		p.warn("text outside blocks")
	}
}

func (p *parser) block(b *pem.Block, text []byte) error {
	if b.Type != "CERTIFICATE" {
		return fmt.Errorf("is a %.40q, not a CERTIFICATE", b.Type)
	}
	if len(b.Headers) > 0 {
		p.warn("PEM headers")
	}
	c, err := x509.ParseCertificate(b.Bytes)
	if err != nil {
		return fmt.Errorf("is not a certificate: %.120v", err)
	}
	fp := Fingerprint(sha256.Sum256(b.Bytes))
	if p.seen[fp] {
		p.warn("a certificate twice")
		return nil
	}
	if len(p.certs) == MaxCerts {
		return fmt.Errorf("is certificate %d, more than %d", len(p.certs)+1, MaxCerts)
	}
	p.seen[fp] = true
	p.judge(c)
	p.certs = append(p.certs, facts(c, fp, text))
	return nil
}

// judge follows crypto/x509: as a trust anchor it takes CAs, version 1 certificates and, for
// themselves, self-signed leaves.
func (p *parser) judge(c *x509.Certificate) {
	ca := c.BasicConstraintsValid && c.IsCA
	if ca || c.Version < 3 || bytes.Equal(c.RawSubject, c.RawIssuer) {
		p.anchor = true
	}
	if !p.opt.AllowLeaf {
		if c.Version < 3 {
			p.warn("an X.509 v1 certificate")
		} else if !ca {
			p.warn("a certificate that is not a CA")
		}
	}
	if !p.opt.Now.IsZero() && p.opt.Now.After(c.NotAfter) {
		p.warn("an expired certificate")
	}
}

func (p *parser) warn(w string) {
	if !slices.Contains(p.warnings, w) {
		p.warnings = append(p.warnings, w)
	}
}

// Diff compares two bundles as sets of fingerprints: what after has and before lacks, and the
// reverse.
func Diff(before, after []Cert) (added, removed []Cert) {
	return without(after, before), without(before, after)
}

func without(a, b []Cert) (out []Cert) {
	has := make(map[Fingerprint]bool, len(b))
	for _, c := range b {
		has[c.Fingerprint] = true
	}
	for _, c := range a {
		if !has[c.Fingerprint] {
			out = append(out, c)
		}
	}
	return out
}

// EarliestExpiry is the first NotAfter among certs, or the zero time if there are none.
func EarliestExpiry(certs []Cert) (t time.Time) {
	for _, c := range certs {
		if t.IsZero() || c.NotAfter.Before(t) {
			t = c.NotAfter
		}
	}
	return t
}

// PEM encodes one certificate as RFC 7468 says, without headers.
func (c Cert) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.DER()})
}
