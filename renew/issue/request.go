// SPDX-License-Identifier: Apache-2.0

package issue

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"slices"

	"github.com/node-cert-agent/node-cert-agent/agent/secret"
)

const (
	requestBlock = "CERTIFICATE REQUEST"
	proofBlock   = "NODE-CERT-AGENT PROOF"

	// proofContext begins what the old key signs of a request, so that no other signature of that key is one of these.
	proofContext = "node-cert-agent renewal request\x00"
)

// MaxRequest bounds a request and what answers it, in bytes.
const MaxRequest = 16 << 10

// Request asks a host that has the CA's key for the successor of a client certificate. Who has the old key has signed
// it, so that it can be handed on by anybody.
//
// As text it is three blocks of PEM: the old leaf (CERTIFICATE), a request of PKCS #10 with the old subject and the
// new key (CERTIFICATE REQUEST), and the signature with the old key over both (NODE-CERT-AGENT PROOF).
type Request struct {
	Old  *x509.Certificate
	New  *x509.CertificateRequest
	text []byte
}

// Text is the request as PEM.
func (r Request) Text() []byte { return r.text }

// MakeRequest makes a request for the successor of a pair, and the key that the successor will have, in the form of
// the old one. With reuse that is the old key. The error matches *Refusal unless the source of random bytes failed.
func MakeRequest(old Pair, reuse bool, random io.Reader) (r Request, made secret.Bytes, err error) {
	chain, err := parseChain(old.Certificate)
	if err != nil {
		return r, made, refuse(Unreadable, "certificate %v", err)
	}
	key, err := parseKey(old.Key)
	if err != nil {
		return r, made, refuse(Unreadable, "key %v", err)
	}
	leaf, before := chain[0], key.signer
	if !matches(before.Public(), leaf) {
		return r, made, refuse(NoPair, "the key is not the certificate's")
	}
	if !reuse {
		if key.signer, err = makeKey(leaf.PublicKey, random); err != nil {
			return r, made, err
		}
	}
	if made, err = key.encode(); err != nil {
		return r, made, err
	}
	csr, err := x509.CreateCertificateRequest(random, &x509.CertificateRequest{RawSubject: leaf.RawSubject}, key.signer)
	if err != nil {
		return r, made, fmt.Errorf("make a request: %w", err)
	}
	proof, err := prove(before, leaf.Raw, csr, random)
	if err != nil {
		return r, made, fmt.Errorf("prove a request: %w", err)
	}
	var text bytes.Buffer
	for _, b := range []pem.Block{{Type: certificateBlock, Bytes: leaf.Raw}, {Type: requestBlock, Bytes: csr},
		{Type: proofBlock, Bytes: proof}} {
		text.Write(pem.EncodeToMemory(&b))
	}
	r, err = ParseRequest(text.Bytes())
	return r, made, err
}

// prove signs with the old key what a request is made of.
func prove(key crypto.Signer, leaf, csr []byte, random io.Reader) ([]byte, error) {
	var opts crypto.SignerOpts = crypto.SHA256
	switch proofAlgorithm(key.Public()) {
	case x509.SHA256WithRSAPSS:
		opts = &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: crypto.SHA256}
	case x509.PureEd25519:
		opts = crypto.Hash(0)
	}
	return crypto.SignMessage(key, random, proven(leaf, csr), opts)
}

// proven is what the old key signs. Both parts are DER, which says where it ends.
func proven(leaf, csr []byte) []byte { return slices.Concat([]byte(proofContext), leaf, csr) }

// proofAlgorithm is how a key of a kind that parseKey knows signs.
func proofAlgorithm(pub crypto.PublicKey) x509.SignatureAlgorithm {
	switch pub.(type) {
	case *rsa.PublicKey:
		return x509.SHA256WithRSAPSS
	case *ecdsa.PublicKey:
		return x509.ECDSAWithSHA256
	case ed25519.PublicKey:
		return x509.PureEd25519
	}
	return x509.UnknownSignatureAlgorithm
}

// ParseRequest reads a request, and verifies that who made it has the old key and the new one. The error matches
// *Refusal. Whether the old leaf is of a CA that counts is for Order.Answer.
func ParseRequest(text []byte) (Request, error) {
	if len(text) > MaxRequest {
		return Request{}, refuse(Unreadable, "request of more than %d bytes", MaxRequest)
	}
	blocks := map[string][]byte{}
	rest := text
	for _, kind := range []string{certificateBlock, requestBlock, proofBlock} {
		var b *pem.Block
		if b, rest = pem.Decode(rest); b == nil || b.Type != kind || len(b.Headers) > 0 {
			return Request{}, refuse(Unreadable, "request has no %s at its place", kind)
		}
		blocks[kind] = b.Bytes
	}
	if len(rest) > 0 {
		return Request{}, refuse(Unreadable, "request holds something after the %s", proofBlock)
	}
	leaf, err := x509.ParseCertificate(blocks[certificateBlock])
	if err != nil {
		return Request{}, refuse(Unreadable, "certificate of the request: %v", err)
	}
	csr, err := x509.ParseCertificateRequest(blocks[requestBlock])
	if err != nil {
		return Request{}, refuse(Unreadable, "request: %v", err)
	}
	r := Request{Old: leaf, New: csr, text: text}
	return r, r.verify(blocks[proofBlock])
}

// verify says why a request is not one of who has both keys.
func (r Request) verify(proof []byte) error {
	message := proven(r.Old.Raw, r.New.Raw)
	switch {
	case !bytes.Equal(r.Old.RawSubject, r.New.RawSubject):
		return refuse(NotProven, "the request is for another subject than the certificate's")
	case len(r.New.Extensions) > 0:
		return refuse(NotProven, "the request asks for extensions: they are the certificate's")
	case r.New.CheckSignature() != nil:
		return refuse(NotProven, "the request is not signed with the new key")
	case r.Old.CheckSignature(proofAlgorithm(r.Old.PublicKey), message, proof) != nil:
		return refuse(NotProven, "the request is not signed with the key of the certificate")
	}
	return nil
}

// Answer makes the certificate that a request asks for; Old and ReuseKey of the order do not count. It has to be that
// of a client and of nothing else. The error matches *Refusal unless the source of random bytes failed.
func (o Order) Answer(r Request, random io.Reader) (*x509.Certificate, error) {
	if u := r.Old.ExtKeyUsage; !slices.Equal(u, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}) ||
		len(r.Old.UnknownExtKeyUsage) > 0 {
		return nil, refuse(NotClient, "%q", r.Old.Subject)
	}
	ca, err := o.authority(r.Old)
	if err != nil {
		return nil, err
	}
	p := proposal{old: r.Old, ca: ca.certificate, now: o.Now, lifetime: o.Lifetime}
	if err := p.check(); err != nil {
		return nil, err
	}
	der, err := p.sign(r.New.PublicKey, ca.signer, random)
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	made, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, refuse(Differs, "certificate %v", err)
	}
	if err := p.verify(made, r.New.PublicKey); err != nil {
		return nil, err
	}
	return made, nil
}

// Accept puts a pair together: of the key that MakeRequest made of the order's old pair, and of the certificate that
// somebody answered with, as PEM. The certificate has to be the successor, signed by a CA of the order; CAKey,
// Lifetime and ReuseKey do not count. The error matches *Refusal.
func (o Order) Accept(key secret.Bytes, answer []byte) (Successor, error) {
	old, err := parseChain(o.Old.Certificate)
	if err != nil {
		return Successor{}, refuse(Unreadable, "certificate %v", err)
	}
	roots, err := parseChain(o.CA)
	if err != nil {
		return Successor{}, refuse(Unreadable, "CA %v", err)
	}
	made, err := parseChain(answer)
	if err != nil || len(made) != 1 || len(answer) > MaxRequest {
		return Successor{}, refuse(Unreadable, "the answer is not one certificate")
	}
	k, err := parseKey(key)
	if err != nil {
		return Successor{}, refuse(Unreadable, "key %v", err)
	}
	if err := o.fits(old[0], made[0], roots, k.signer); err != nil {
		return Successor{}, err
	}
	s := Successor{Pair: Pair{Key: key}, Leaf: made[0]}
	for _, c := range append(made, old[1:]...) {
		s.Certificate = append(s.Certificate, pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: c.Raw})...)
	}
	return s, nil
}

// fits says why a certificate that somebody else made is not the successor.
func (o Order) fits(old, made *x509.Certificate, roots []*x509.Certificate, key crypto.Signer) error {
	if differs := Same(old, made); len(differs) > 0 {
		return refuse(Differs, "in %s", joined(differs))
	}
	switch {
	case !matches(key.Public(), made):
		return refuse(Differs, "its key is another")
	case !made.NotAfter.After(old.NotAfter):
		return refuse(NoGain, "it ends at %s, the old one at %s", said(made.NotAfter), said(old.NotAfter))
	}
	pool := x509.NewCertPool()
	for _, c := range roots {
		pool.AddCert(c)
	}
	if _, err := made.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: o.Now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		return refuse(Differs, "it does not verify: %v", err)
	}
	return nil
}
