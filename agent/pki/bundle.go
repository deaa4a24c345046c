// SPDX-License-Identifier: Apache-2.0

// Package pki decides what counts as certificate data fit for a host's disk: it parses and
// validates PEM bundles and compares them as sets of certificates. It is pure: the caller brings
// the bytes and the clock.
//
// It rejects and never repairs. A candidate that holds a private key, an undecodable or truncated
// block or no usable certificate, or that is larger than the limits, is refused whole, because
// encoding/pem skips what it cannot decode and so turns a typing error into silently lost trust.
//
// There is one reading of a bundle, the strictest consumer's: what is accepted, client-go's
// ParseCertsPEM, crypto/x509, OpenSSL and p11-kit load with exactly our fingerprints, and what any of
// them would skip, join or read as something else is refused: headers, other labels, blank lines in
// blocks, control characters, p11-kit's own format, certificates that are not plain DER. tests/readers
// holds the package to it. Where the bytes need not be somebody else's, Bundle.Canonical is written.
//
// What all of them load alike and is questionable all the same (text outside blocks, CRLF, duplicates,
// expired certificates) is accepted with a warning. NotBefore never refuses: clocks of booting hosts
// are slow.
//
// It does not verify chains, signatures or names; consumers do that with the bytes it lets pass.
//
// Sources: RFC 7468 (textual encodings), RFC 5280 (profile), X.690 (DER), the parsing rules of
// cert-manager/trust-manager pkg/util/cert_pool.go, and the readers themselves: client-go
// util/cert/pem.go, crypto/pem/pem_lib.c of OpenSSL, common/pem.c and trust/parser.c of p11-kit.
package pki

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/printable"
)

// Limits of a bundle. A corporate trust store of 150 certificates is about 250 KiB; a Kubernetes
// object cannot carry much more than 1 MiB.
const (
	MaxBytes = 1 << 20
	MaxCerts = 500
)

// Options say what one field of the host's file table accepts.
type Options struct {
	// AllowLeaf accepts certificates that are not CAs without a word: registries may be trusted by
	// their own self-signed certificate.
	AllowLeaf bool
	// Strict refuses what is otherwise only warned about.
	Strict bool
	// AsPublished is set if the bytes themselves go to the disk and not their canonical form. What only
	// newer versions of a program read is then refused.
	AsPublished bool
	// Now judges expiry; the zero time judges nothing as expired.
	Now time.Time
}

// Bundle is a set of certificates that passed Parse.
type Bundle struct {
	// Certs holds each certificate once, in the order of first appearance.
	Certs []Cert
	// Canonical holds the same certificates, in that order, in the one form that leaves a reader no
	// choice: blocks as RFC 7468 says, lines of 64, and nothing between them.
	Canonical []byte
	// Warnings say in a few words each what is questionable, without repeating content.
	Warnings []string
}

// Parse validates a PEM bundle. An error means that the bytes must not reach the disk, and is one
// line fit for the journal: it never repeats what is between the block marks.
//
// What is accepted, every program that reads such files reads alike (docs/decisions/0027-one-reading.md), and
// its certificates are those of Bundle.Certs. Refused are: anything that looks like a private key, a
// block of another type than CERTIFICATE, one that does not decode, is cut off, has headers or a blank
// line, control characters, p11-kit's own format, more than MaxBytes or MaxCerts, and a bundle in which
// no certificate could anchor trust (none is a CA, self-issued or X.509 v1), unless AllowLeaf.
func Parse(data []byte, opt Options) (Bundle, error) {
	if len(data) > MaxBytes {
		return Bundle{}, fmt.Errorf("%d bytes, more than %d", len(data), MaxBytes)
	}
	if bytes.Contains(data, keyMark) {
		return Bundle{}, errors.New("holds a private key")
	}
	if err := plain(data); err != nil {
		return Bundle{}, err
	}
	p := parser{opt: opt, seen: make(map[Fingerprint]bool), text: make([]byte, 0, len(data))}
	if err := p.blocks(data); err != nil {
		return Bundle{}, err
	}
	if len(p.text) > MaxBytes {
		return Bundle{}, fmt.Errorf("%d bytes in lines of 64, more than %d", len(p.text), MaxBytes)
	}
	if len(p.certs) == 0 {
		return Bundle{}, errors.New("holds no certificate")
	}
	if !p.anchor && !opt.AllowLeaf {
		return Bundle{}, errors.New("holds no certificate that can anchor trust: none is a CA")
	}
	if opt.Strict && len(p.warnings) > 0 {
		return Bundle{}, errors.New("strict: " + strings.Join(p.warnings, ", "))
	}
	return p.bundle(data), nil
}

type parser struct {
	opt Options
	// text is the canonical form of certs.
	text     []byte
	certs    []Cert
	warnings []string
	seen     map[Fingerprint]bool
	anchor   bool
}

// blocks takes in each block of data.
func (p *parser) blocks(data []byte) error {
	s := scanner{rest: data, exact: p.opt.AsPublished, warn: p.warn}
	for {
		der, err := s.next()
		if der == nil || err != nil {
			return err
		}
		if err := p.certificate(der); err != nil {
			return fmt.Errorf("block %d %v", s.blocks, err)
		}
	}
}

func (p *parser) certificate(der []byte) error {
	c, err := readCertificate(der)
	if err != nil {
		return err
	}
	fp := Fingerprint(sha256.Sum256(der))
	if p.seen[fp] {
		p.warn("a certificate twice")
		return nil
	}
	if len(p.certs) == MaxCerts {
		return fmt.Errorf("is certificate %d, more than %d", len(p.certs)+1, MaxCerts)
	}
	p.seen[fp] = true
	p.judge(c)
	start := len(p.text)
	p.text = appendPEM(p.text, der)
	p.certs = append(p.certs, facts(c, fp, p.text[start:]))
	return nil
}

// readCertificate takes a certificate that every program loads.
func readCertificate(der []byte) (*x509.Certificate, error) {
	c, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("is not a certificate: %.120v", err)
	}
	return c, exactDER(der)
}

// bundle is what was found in data. Its texts are one, which is data itself if that has the canonical
// form: most have, and what is known of a bundle is kept for long.
func (p *parser) bundle(data []byte) Bundle {
	if bytes.Equal(p.text, data) {
		p.text = data
	}
	start := 0
	for i := range p.certs {
		end := start + len(p.certs[i].block)
		p.certs[i].block, start = p.text[start:end:end], end
	}
	return Bundle{Certs: p.certs, Canonical: p.text, Warnings: p.warnings}
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
func (c Cert) PEM() []byte { return appendPEM(nil, c.DER()) }

// Fingerprint is the SHA-256 over a certificate's DER encoding; certificates are compared by it and
// by nothing else.
type Fingerprint [32]byte

// String is the lower-case hexadecimal form.
func (f Fingerprint) String() string { return hex.EncodeToString(f[:]) }

// Cert holds the facts of one certificate that plans, records and status need.
type Cert struct {
	Fingerprint Fingerprint
	// Subject is the distinguished name in RFC 2253 form, made printable: it comes from the cluster.
	Subject             string
	NotBefore, NotAfter time.Time
	// CA tells whether basicConstraints says so.
	CA bool
	// block is the PEM block in the text that it was read from. The text is kept by others anyway, and
	// a decoded copy of each bundle would weigh as much again.
	block []byte
}

// DER decodes the certificate, anew at each call. It is nil for a Cert that was not read from text.
func (c Cert) DER() []byte {
	if b, _ := pem.Decode(c.block); b != nil {
		return b.Bytes
	}
	return nil
}

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
