// SPDX-License-Identifier: Apache-2.0

// Package csr says what a node's certificate signing request looks like. The agent builds it, and the
// approver checks it against the same rules; neither knows a rule that is not here.
//
// It owns the names of our users and groups, the PKCS#10 inside the request and the name of the
// object around it. It is pure: keys and randomness come in, bytes and reasons come out.
//
// It promises that what Build returns passes Check, and that whatever passes Check asks for one node's
// identity and nothing else. That matters because the signer kubernetes.io/kube-apiserver-client signs
// any subject but system:masters, and any alternative name, once somebody approved it.
//
// Sources: RFC 2986 (PKCS#10), RFC 1123 as Kubernetes reads it for object names, the page
// "Certificates and Certificate Signing Requests" of the Kubernetes documentation.
package csr

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base32"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"io"
	"slices"
	"strings"
)

// What the API server and RBAC know us by.
const (
	// Signer is the signer of every certificate of ours, spec.signerName of the object.
	Signer = "kubernetes.io/kube-apiserver-client"
	// UserPrefix and a node's name make the user name, the certificate's common name.
	UserPrefix = "node-cert-agent:node:"
	// Group is the one organization of every certificate of ours.
	Group = "node-cert-agent:nodes"
	// BootstrapGroup is what a bootstrap token carries so that it may ask for a first certificate.
	BootstrapGroup = "system:bootstrappers:node-cert-agent"
	// NamePrefix begins the name of every request object of ours.
	NamePrefix = "node-cert-agent-"
)

// maxPEM is far above any request with a P-256 key; larger input is not parsed.
const maxPEM = 16 << 10

const blockType = "CERTIFICATE REQUEST"

// alphabet spells digests in what a DNS label may hold.
var alphabet = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// Usages is spec.usages of every request: exactly these two.
func Usages() []string { return []string{"digital signature", "client auth"} }

// User is the name by which the API server knows the agent of a node.
func User(node string) string { return UserPrefix + node }

// Request is what a request asks for.
type Request struct {
	// Node is the node whose identity is asked for.
	Node string
	// SPKI is the public key, a DER SubjectPublicKeyInfo, and Subject the DER of the subject.
	SPKI, Subject []byte
}

// Build makes the PEM of a request for the identity of a node. The key must be an ECDSA P-256 key.
// It fails with a *Violation if node or key are not what Check accepts.
func Build(node string, key crypto.Signer, rand io.Reader) ([]byte, error) {
	if !IsDNSName(node) {
		return nil, violation(ruleNodeName, "%.64q is not a lower-case DNS name", node)
	}
	if err := checkKey(key.Public()); err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificateRequest(rand, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: User(node), Organization: []string{Group}},
	}, key)
	if err != nil {
		return nil, fmt.Errorf("making the certificate request: %v", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: blockType, Bytes: der}), nil
}

// Name is the name of the object for a request with this spec: a readable prefix and 160 bits of a
// SHA-256 over key, subject, signer, usages (as a set) and lifetime. One key asking for one thing has
// one name, so that a retry finds the object that an earlier try made; the signature is not covered,
// because that of an ECDSA key differs every time. Who does not know the key cannot guess the name.
func Name(r Request, signer string, usages []string, expirationSeconds int32) string {
	h := sha256.New()
	frame := func(b []byte) {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(b))))
		h.Write(b)
	}
	frame(r.SPKI)
	frame(r.Subject)
	frame([]byte(signer))
	set := slices.Compact(slices.Sorted(slices.Values(usages)))
	frame(binary.BigEndian.AppendUint64(nil, uint64(len(set))))
	for _, u := range set {
		frame([]byte(u))
	}
	frame(binary.BigEndian.AppendUint32(nil, uint32(expirationSeconds)))
	return NamePrefix + alphabet.EncodeToString(h.Sum(nil)[:20])
}

// Named tells whether an object's name has the form that Name gives.
func Named(name string) bool {
	digest, ours := strings.CutPrefix(name, NamePrefix)
	return ours && len(digest) == 32 && strings.Trim(digest, "0123456789abcdefghijklmnopqrstuv") == ""
}

// Check reads the PEM of a request and holds it against every rule. It fails with a *Violation that
// names the first rule broken. It accepts any input.
func Check(request []byte) (Request, error) {
	c, err := parse(request)
	if err != nil {
		return Request{}, err
	}
	node, err := checkSubject(c.Subject.Names)
	if err != nil {
		return Request{}, err
	}
	if err := checkKey(c.PublicKey); err != nil {
		return Request{}, err
	}
	if len(c.Extensions) > 0 {
		return Request{}, violation(ruleExtensions, "asks for %d extensions or alternative names", len(c.Extensions))
	}
	if err := c.CheckSignature(); err != nil {
		return Request{}, violation(ruleSignature, "was not made with the key in the request")
	}
	return Request{Node: node, SPKI: c.RawSubjectPublicKeyInfo, Subject: c.RawSubject}, nil
}

func parse(request []byte) (*x509.CertificateRequest, error) {
	if len(request) > maxPEM {
		return nil, violation(ruleEncoding, "%d bytes, more than %d", len(request), maxPEM)
	}
	block, rest := pem.Decode(request)
	switch {
	case block == nil || !bytes.HasPrefix(bytes.TrimSpace(request), []byte("-----BEGIN "+blockType)):
		return nil, violation(ruleEncoding, "not one PEM block of type %s", blockType)
	case block.Type != blockType || len(block.Headers) > 0 || len(bytes.TrimSpace(rest)) > 0:
		return nil, violation(ruleEncoding, "more or other than one PEM block of type %s", blockType)
	}
	c, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, violation(ruleEncoding, "not PKCS#10: %.120v", err)
	}
	return c, nil
}

var (
	commonName   = asn1.ObjectIdentifier{2, 5, 4, 3}
	organization = asn1.ObjectIdentifier{2, 5, 4, 10}
)

// checkSubject accepts our common name and our organization, each once, and nothing beside them.
func checkSubject(names []pkix.AttributeTypeAndValue) (node string, err error) {
	if len(names) != 2 {
		return "", violation(ruleSubject, "has %d attributes, want a common name and an organization", len(names))
	}
	for _, n := range names {
		value, _ := n.Value.(string)
		switch {
		case n.Type.Equal(commonName) && node == "":
			var ours bool
			if node, ours = strings.CutPrefix(value, UserPrefix); !ours {
				return "", violation(ruleSubject, "common name %.128q, want %s<node>", value, UserPrefix)
			}
			if !IsDNSName(node) {
				return "", violation(ruleNodeName, "%.64q is not a lower-case DNS name", node)
			}
		case n.Type.Equal(organization):
			if value != Group {
				return "", violation(ruleSubject, "organization %.128q, want %s", value, Group)
			}
		default:
			return "", violation(ruleSubject, "has a second common name or the attribute %v", n.Type)
		}
	}
	if node == "" {
		return "", violation(ruleSubject, "has no common name")
	}
	return node, nil
}

func checkKey(key crypto.PublicKey) error {
	if k, ok := key.(*ecdsa.PublicKey); !ok || k.Curve != elliptic.P256() {
		return violation(ruleKey, "%T, want ECDSA on P-256", key)
	}
	return nil
}

// IsDNSName accepts a DNS subdomain as Kubernetes names nodes and other objects (RFC 1123): at most 253 bytes of
// labels of lower-case letters, digits and inner hyphens.
func IsDNSName(name string) bool {
	if len(name) > 253 {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for i := range len(label) {
			if c := label[i]; c != '-' && (c < 'a' || c > 'z') && (c < '0' || c > '9') {
				return false
			}
		}
	}
	return true
}

// rule names what a request has to obey, in one or two words for events and conditions.
type rule string

// The rules, in the order in which Check looks.
const (
	// ruleEncoding: one PEM block CERTIFICATE REQUEST with a PKCS#10 in it, and nothing else.
	ruleEncoding rule = "encoding"
	// ruleSubject: a common name of ours and our one organization, and nothing else.
	ruleSubject rule = "subject"
	// ruleNodeName: the common name ends in a lower-case DNS name of at most 253 bytes.
	ruleNodeName rule = "node name"
	// ruleKey: ECDSA on the curve P-256.
	ruleKey rule = "key"
	// ruleExtensions: none are asked for, and so no alternative names.
	ruleExtensions rule = "extensions"
	// ruleSignature: made with the key in the request.
	ruleSignature rule = "signature"
)

// Violation is a rule that a request breaks. Whoever made the request has to change it; asking again
// does not help.
type Violation struct {
	Rule rule
	// Fact is what is wrong, on one line and without control characters; parts of the request are
	// quoted and cut.
	Fact string
}

// Error implements error.
func (v *Violation) Error() string { return "certificate request: " + string(v.Rule) + ": " + v.Fact }

func violation(r rule, format string, args ...any) error {
	return &Violation{r, fmt.Sprintf(format, args...)}
}
