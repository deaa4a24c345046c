// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/apiserver"
	"github.com/node-cert-agent/node-cert-agent/agent/csr"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// sign makes a certificate for a new key like those of agents: one of the control plane's own kind would be RSA, which
// takes longer to make than all else.
func sign(ca *testpki.Authority, user string) (der []byte, key *ecdsa.PrivateKey, err error) {
	if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(math.MaxInt64))
	if err != nil {
		return nil, nil, err
	}
	der, err = x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: serial,
		Subject:  pkix.Name{CommonName: user, Organization: []string{csr.Group}},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(24 * time.Hour)}, ca.Cert, key.Public(), ca.Key)
	return der, key, err
}

// giveIdentity puts an identity into the tree of a node, as its agent keeps one that it got: see agent/identity.
func giveIdentity(ca *testpki.Authority, server, node, root string) error {
	der, key, err := sign(ca, csr.User(node))
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	notes, err := json.Marshal(map[string]any{"received": time.Now(),
		"cluster": apiserver.Cluster{Server: server, CA: ca.PEM()}})
	if err != nil {
		return err
	}
	var content []byte
	for _, b := range []pem.Block{{Type: "CERTIFICATE", Bytes: der}, {Type: "PRIVATE KEY", Bytes: private},
		{Type: "NODE-CERT-AGENT IDENTITY", Bytes: notes}} {
		content = slices.Concat(content, pem.EncodeToMemory(&b))
	}
	dir := filepath.Join(root, stateDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "identity.pem"), content, 0o600)
}
