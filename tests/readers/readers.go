// SPDX-License-Identifier: Apache-2.0

// Package readers reads certificate bundles as the programs do that a host has: client-go for the
// kubelet, crypto/x509 for container runtimes, OpenSSL for what is written in C, and p11-kit for
// update-ca-trust. Its tests hold agent/pki to them: what a field accepts, all of them load, with the
// same fingerprints.
//
// It judges nothing and repairs nothing. A reader answers with what it would trust; its error is the
// reader's own. OpenSSL and p11-kit are the installed programs, run on a file in a directory of the
// caller.
package readers

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	"k8s.io/client-go/util/cert"

	"github.com/node-cert-agent/node-cert-agent/agent/pki"
)

// Set is what a reader found: each fingerprint once, in order.
type Set []pki.Fingerprint

// Of is the set of these DER certificates.
func Of(ders ...[]byte) (s Set) {
	for _, der := range ders {
		s = append(s, sha256.Sum256(der))
	}
	slices.SortFunc(s, func(a, b pki.Fingerprint) int { return bytes.Compare(a[:], b[:]) })
	return slices.Compact(s)
}

// Expected is the set of certificates that Parse found.
func Expected(certs []pki.Cert) Set {
	ders := make([][]byte, len(certs))
	for i, c := range certs {
		ders[i] = c.DER()
	}
	return Of(ders...)
}

// ClientGo reads as the kubelet reads its clientCAFile.
func ClientGo(data []byte) (Set, error) {
	certs, err := cert.ParseCertsPEM(data)
	if err != nil {
		return nil, err
	}
	ders := make([][]byte, len(certs))
	for i, c := range certs {
		ders[i] = c.Raw
	}
	return Of(ders...), nil
}

// CertPool reads as container runtimes read the files of registries. A pool does not tell what is in
// it, so that the answer is whether it is a pool of exactly want.
func CertPool(data []byte, want []pki.Cert) error {
	got, exact := x509.NewCertPool(), x509.NewCertPool()
	if !got.AppendCertsFromPEM(data) {
		return errors.New("no certificate was added")
	}
	for _, c := range want {
		x, err := x509.ParseCertificate(c.DER())
		if err != nil {
			return fmt.Errorf("certificate %.16s: %v", c.Fingerprint, err)
		}
		exact.AddCert(x)
	}
	if !got.Equal(exact) {
		return fmt.Errorf("the pool is not one of exactly these %d certificates", len(want))
	}
	return nil
}

// blocks are the CERTIFICATE blocks in the output of a program.
func blocks(out []byte) (ders [][]byte) {
	for {
		block, rest := pem.Decode(out)
		if block == nil {
			return ders
		}
		if out = rest; block.Type == "CERTIFICATE" {
			ders = append(ders, block.Bytes)
		}
	}
}
