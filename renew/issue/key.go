// SPDX-License-Identifier: Apache-2.0

package issue

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/node-cert-agent/node-cert-agent/agent/secret"
)

const (
	certificateBlock = "CERTIFICATE"
	parametersBlock  = "EC PARAMETERS" // `openssl ecparam -genkey` puts it before the key

	pkcs1 = "RSA PRIVATE KEY"
	sec1  = "EC PRIVATE KEY"
	pkcs8 = "PRIVATE KEY"
)

// Keys of RSA are made from 2048 bits, and up to the size that crypto/tls accepts of the other side.
const leastRSA, mostRSA = 2048, 8192

// keyFile is a private key and the form in which its file holds it.
type keyFile struct {
	signer     crypto.Signer
	form       string
	parameters *pem.Block // nil if there are none
}

// parseKey reads a file of one private key. Its errors hold no byte of it, which those of the library might.
func parseKey(text secret.Bytes) (k keyFile, err error) {
	for rest := text.Reveal(); ; {
		var b *pem.Block
		if b, rest = pem.Decode(rest); b == nil {
			break
		}
		switch {
		case b.Type == parametersBlock && k.signer == nil && k.parameters == nil:
			k.parameters = b
			continue
		case k.signer != nil:
			return k, errors.New("holds something after the key")
		case len(b.Headers) > 0:
			return k, errors.New("is encrypted, or has headers")
		}
		if k.signer, err = parseKeyBlock(b); err != nil {
			return k, err
		}
		k.form = b.Type
	}
	if k.signer == nil {
		return k, errors.New("holds none")
	}
	return k, nil
}

func parseKeyBlock(b *pem.Block) (crypto.Signer, error) {
	var key any
	var err error
	switch b.Type {
	case pkcs1:
		key, err = x509.ParsePKCS1PrivateKey(b.Bytes)
	case sec1:
		key, err = x509.ParseECPrivateKey(b.Bytes)
	case pkcs8:
		key, err = x509.ParsePKCS8PrivateKey(b.Bytes)
	default:
		return nil, fmt.Errorf("is in a form other than %s, %s and %s", pkcs1, sec1, pkcs8)
	}
	if err != nil {
		return nil, fmt.Errorf("is no %s", b.Type)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, errors.New("is none that signs")
	}
	return signer, nil
}

// encode is parseKey's inverse.
func (k keyFile) encode() (text secret.Bytes, err error) {
	b := &pem.Block{Type: k.form}
	switch key := k.signer.(type) {
	case *rsa.PrivateKey:
		b.Bytes = x509.MarshalPKCS1PrivateKey(key)
	case *ecdsa.PrivateKey:
		b.Bytes, err = x509.MarshalECPrivateKey(key)
	}
	if k.form == pkcs8 {
		b.Bytes, err = x509.MarshalPKCS8PrivateKey(k.signer)
	}
	if err != nil {
		return text, errors.New("the key cannot be encoded")
	}
	var out bytes.Buffer
	if k.parameters != nil {
		out.Write(pem.EncodeToMemory(k.parameters))
	}
	out.Write(pem.EncodeToMemory(b))
	return secret.New(out.Bytes()), nil
}

// makeKey makes a key of the same kind and size as pub.
func makeKey(pub crypto.PublicKey, random io.Reader) (crypto.Signer, error) {
	switch k := pub.(type) {
	case *rsa.PublicKey:
		if k.N.BitLen() > mostRSA {
			return nil, refuse(KeyKind, "RSA with %d bits, more than %d", k.N.BitLen(), mostRSA)
		}
		return rsa.GenerateKey(random, max(leastRSA, k.N.BitLen()))
	case *ecdsa.PublicKey:
		if !slices.Contains([]elliptic.Curve{elliptic.P224(), elliptic.P256(), elliptic.P384(), elliptic.P521()}, k.Curve) {
			return nil, refuse(KeyKind, "ECDSA on %s", k.Curve.Params().Name)
		}
		return ecdsa.GenerateKey(k.Curve, random)
	case ed25519.PublicKey:
		_, key, err := ed25519.GenerateKey(random)
		return key, err
	}
	return nil, refuse(KeyKind, "%T", pub)
}

// matches tells whether the public key is the certificate's.
func matches(public crypto.PublicKey, c *x509.Certificate) bool {
	p, ok := public.(interface{ Equal(crypto.PublicKey) bool })
	return ok && p.Equal(c.PublicKey)
}

// parseChain reads a file of certificates and nothing else. Text between them is passed over.
func parseChain(text []byte) (chain []*x509.Certificate, err error) {
	for rest := text; ; {
		var b *pem.Block
		if b, rest = pem.Decode(rest); b == nil {
			break
		}
		if b.Type != certificateBlock || len(b.Headers) > 0 {
			return nil, errors.New("holds something else than certificates")
		}
		c, err := x509.ParseCertificate(b.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%d cannot be parsed: %w", len(chain)+1, err)
		}
		chain = append(chain, c)
	}
	if len(chain) == 0 {
		return nil, errors.New("holds none")
	}
	return chain, nil
}
