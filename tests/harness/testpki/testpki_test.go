// SPDX-License-Identifier: Apache-2.0

package testpki_test

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

func TestWhatIsIssuedVerifies(t *testing.T) {
	for name, alg := range map[string]testpki.Algorithm{"with ECDSA keys": testpki.ECDSA, "with RSA keys": testpki.RSA} {
		t.Run(name, func(t *testing.T) {
			ca := testpki.New("root", alg)
			roots := x509.NewCertPool()
			if !roots.AppendCertsFromPEM(ca.PEM()) {
				t.Fatal("the authority's PEM holds no certificate")
			}
			leaf := ca.Client("node-cert-agent:node:a", "node-cert-agent:nodes").TLS().Leaf
			if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots,
				KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
				t.Fatal(err)
			}
			if leaf.Subject.CommonName != "node-cert-agent:node:a" || leaf.Subject.Organization[0] != "node-cert-agent:nodes" {
				t.Fatalf("subject %v", leaf.Subject)
			}
		})
	}
}

func TestATemplateMayAskForAnExpiredAuthority(t *testing.T) {
	past := time.Now().Add(-time.Hour).Truncate(time.Second)
	ca := testpki.NewFrom(x509.Certificate{Subject: pkix.Name{CommonName: "old"}, NotAfter: past}, testpki.ECDSA)
	if !ca.Cert.NotAfter.Equal(past) || !ca.Cert.IsCA {
		t.Fatalf("NotAfter %v, CA %v; want %v and a CA", ca.Cert.NotAfter, ca.Cert.IsCA, past)
	}
}

func TestABundleHoldsOneCertificateForEachNameInTheirOrder(t *testing.T) {
	var got []string
	for rest := testpki.Bundle("a", "b", "a"); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, cert.Subject.CommonName)
	}
	if len(got) != 3 || got[0] != "a" || got[1] != "b" || got[2] != "a" {
		t.Fatalf("names %q", got)
	}
	if bytes.Equal(testpki.NewCA("a"), testpki.NewCA("a")) {
		t.Fatal("two authorities of one name are the same certificate")
	}
}
