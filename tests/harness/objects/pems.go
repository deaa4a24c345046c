// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"math/big"
	"strings"
	"time"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/must"
)

// key is the same for the same name. Ed25519 signs without chance.
func key(name string) ed25519.PrivateKey {
	seed := sha256.Sum256([]byte(name))
	return ed25519.NewKeyFromSeed(seed[:])
}

// template is a CA of that name, valid at Clock.
func template(name string) *x509.Certificate {
	id := sha256.Sum256([]byte(name))
	return &x509.Certificate{SerialNumber: new(big.Int).SetBytes(id[:8]), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(2036, 1, 1, 0, 0, 0, 0, time.UTC),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, SubjectKeyId: id[:20]}
}

// sign makes a certificate in PEM; issuer may be its own subject.
func sign(c, issuer *x509.Certificate) []byte {
	der, err := x509.CreateCertificate(nil, c, issuer, key(c.Subject.CommonName).Public(), key(issuer.Subject.CommonName))
	must.OK(err)
	return block("CERTIFICATE", der)
}

func ca(name string) []byte { c := template(name); return sign(c, c) }

func expired(name string) []byte {
	c := template(name)
	c.NotAfter = c.NotBefore.AddDate(0, 1, 0)
	return sign(c, c)
}

func future(name string) []byte {
	c := template(name)
	c.NotBefore = c.NotAfter.AddDate(-1, 0, 0)
	return sign(c, c)
}

// leaf is a server's certificate issued by the CA of the other name.
func leaf(name, issuer string) []byte {
	c := template(name)
	c.IsCA, c.KeyUsage = false, x509.KeyUsageDigitalSignature
	return sign(c, template(issuer))
}

func selfSignedLeaf(name string) []byte { return leaf(name, name) }

func privateKey() []byte {
	der, err := x509.MarshalPKCS8PrivateKey(key("a"))
	must.OK(err)
	return block("PRIVATE KEY", der)
}

// v1 is a root of X.509 version 1, without extensions, which crypto/x509 reads and does not make.
// Source: RFC 5280, 4.1.
func v1(name string) []byte {
	c, err := x509.ParseCertificate(first(ca(name)).Bytes)
	must.OK(err)
	algorithm := pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 3, 101, 112}}
	tbs, err := asn1.Marshal(struct {
		Serial    *big.Int
		Algorithm pkix.AlgorithmIdentifier
		Issuer    asn1.RawValue
		Validity  struct{ NotBefore, NotAfter time.Time }
		Subject   asn1.RawValue
		Key       asn1.RawValue
	}{c.SerialNumber, algorithm, asn1.RawValue{FullBytes: c.RawIssuer},
		struct{ NotBefore, NotAfter time.Time }{c.NotBefore, c.NotAfter},
		asn1.RawValue{FullBytes: c.RawSubject}, asn1.RawValue{FullBytes: c.RawSubjectPublicKeyInfo}})
	must.OK(err)
	signature := ed25519.Sign(key(name), tbs)
	der, err := asn1.Marshal(struct {
		TBS       asn1.RawValue
		Algorithm pkix.AlgorithmIdentifier
		Signature asn1.BitString
	}{asn1.RawValue{FullBytes: tbs}, algorithm, asn1.BitString{Bytes: signature, BitLength: 8 * len(signature)}})
	must.OK(err)
	return block("CERTIFICATE", der)
}

// odd is a CA of its own whose basic constraints hold a REAL in the place of a BOOLEAN.
func odd(name string) []byte {
	c := template(name)
	c.IsCA, c.BasicConstraintsValid = false, false
	c.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Critical: true,
		Value: []byte{0x30, 3, 9, 1, 0xff}}}
	return sign(c, c)
}

// longer is a CA with another element, a NULL, after its signature.
func longer(name string) []byte {
	var c struct{ TBS, Algorithm, Signature asn1.RawValue }
	_, err := asn1.Unmarshal(first(ca(name)).Bytes, &c)
	must.OK(err)
	all := struct{ TBS, Algorithm, Signature, More asn1.RawValue }{c.TBS, c.Algorithm, c.Signature, asn1.NullRawValue}
	der, err := asn1.Marshal(all)
	must.OK(err)
	return block("CERTIFICATE", der)
}

// spare is a certificate with one of the bits set that its last character of base64 has left over.
func spare(b []byte) []byte {
	const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	b = bytes.Clone(b)
	last := bytes.IndexByte(b, '=') - 1
	b[last] = digits[strings.IndexByte(digits, b[last])+1]
	return b
}

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func first(b []byte) *pem.Block { p, _ := pem.Decode(b); return p }
