// SPDX-License-Identifier: Apache-2.0

package readers_test

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"fmt"
	"math/big"
	"math/rand/v2"
	"net"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/objects"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
	"github.com/node-cert-agent/node-cert-agent/tests/readers"
)

// fields accept most: leaves too. The second one's files are as published.
var (
	registries = plan.FileSpec{Field: plan.ImageRegistryBundleData, Path: "/etc/docker/certs.d/{name}/ca.crt"}
	specs      = []plan.FileSpec{registries, registries.With([]plan.Writer{plan.MachineConfigDaemon})}
)

// accepted are the files that come of one publication, by what the field is.
func accepted(data []byte) (out []plan.Entry) {
	for _, r := range specs {
		if e, err := r.Entry("r.example", data, time.Time{}); err == nil {
			out = append(out, e)
		}
	}
	return out
}

// alike tells whether the readers written in Go find in a file what we say that it holds.
func alike(e plan.Entry) error {
	got, err := readers.ClientGo(e.Data)
	if err != nil || !slices.Equal(got, readers.Expected(e.Certs)) {
		return fmt.Errorf("client-go reads %d certificates (%v), we %d", len(got), err, len(e.Certs))
	}
	if err := readers.CertPool(e.Data, e.Certs); err != nil {
		return fmt.Errorf("crypto/x509: %v", err)
	}
	return nil
}

// seeds are certificates with everything in them that a reader may stumble over.
func seeds() (ders [][]byte) {
	_, network, _ := net.ParseCIDR("10.0.0.0/8")
	rich := x509.Certificate{SerialNumber: new(big.Int).Lsh(big.NewInt(1), 150),
		Subject: pkix.Name{CommonName: "rich", Organization: []string{"Größer", "P"}, Country: []string{"DE"},
			SerialNumber: "7"},
		IsCA: true, BasicConstraintsValid: true, MaxPathLen: 3, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageAny, x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"a.example", "*.b.example"}, IPAddresses: []net.IP{net.IPv4(1, 2, 3, 4)},
		URIs: []*url.URL{{Scheme: "https", Host: "x.example"}}, EmailAddresses: []string{"a@b.example"},
		PermittedDNSDomains: []string{"example"}, PermittedDNSDomainsCritical: true, PermittedIPRanges: []*net.IPNet{network},
		CRLDistributionPoints: []string{"http://x/crl"}, OCSPServer: []string{"http://x/o"},
		IssuingCertificateURL: []string{"http://x/i"},
		PolicyIdentifiers:     []asn1.ObjectIdentifier{{1, 2, 3, 4}},
		ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 32473, 1},
			Value: []byte("hello")}}}
	bundles := append(objects.Contents(), testpki.NewFrom(rich, testpki.ECDSA).PEM(),
		testpki.NewFrom(rich, testpki.RSA).PEM())
	for _, data := range bundles {
		for b, rest := pem.Decode(data); b != nil; b, rest = pem.Decode(rest) {
			ders = append(ders, b.Bytes)
		}
	}
	return ders
}

// mutants are so many certificates that crypto/x509 reads, each with something changed.
func mutants(seed uint64, n int) (ders [][]byte) {
	from := seeds()
	from = append(from, slices.Repeat(from[len(from)-2:], len(from)/2)...)
	r := rand.New(rand.NewPCG(seed, 1))
	for len(ders) < n {
		der := readers.Mutate(r, from[r.IntN(len(from))])
		if _, err := x509.ParseCertificate(der); err == nil {
			ders = append(ders, der)
		}
	}
	return ders
}

func inPEM(der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}) }

func TestGoReadsInEachAcceptedFileWhatWeRead(t *testing.T) {
	files, taken := readers.Files(), 0
	for i, der := range mutants(1, 2000) {
		files = append(files, readers.File{Name: fmt.Sprintf("mutant %d", i),
			Data: slices.Concat(objects.CA("a"), inPEM(der))})
	}
	for _, f := range files {
		for _, e := range accepted(f.Data) {
			taken++
			if err := alike(e); err != nil {
				t.Errorf("%s: %v", f.Name, err)
			}
		}
	}
	if taken < 1000 {
		t.Errorf("of %d files only %d were accepted", len(files), taken)
	}
}

// TestWhatIsWidelyUsedIsAccepted: to be strict must not cost anybody his certificates.
func TestWhatIsWidelyUsedIsAccepted(t *testing.T) {
	pair := slices.Concat(objects.CA("a"), objects.CA("b"))
	for sentence, data := range map[string][]byte{
		"CRLF":             bytes.ReplaceAll(pair, []byte("\n"), []byte("\r\n")),
		"no final newline": bytes.TrimSpace(pair),
		"comments":         slices.Concat([]byte("# Corporate Root G1 (größer)\n=====\n"), pair, []byte("\n# end -----\n")),
		"openssl s_client": slices.Concat([]byte(" 0 s:CN = a\n   i:CN = a\n"), pair, []byte("---\n")),
		"blank lines":      slices.Concat([]byte("\n"), objects.CA("a"), []byte("\n \n"), objects.CA("b")),
	} {
		if got := accepted(data); len(got) != 2 || len(got[0].Certs) != 2 {
			t.Errorf("%s: of the two fields %d accept it", sentence, len(got))
		}
	}
}

// FuzzReading: whatever the fields accept, Go's readers read alike; and what is written is what would be
// made of it again.
func FuzzReading(f *testing.F) {
	for _, file := range readers.Files() {
		f.Add(file.Data)
	}
	for _, der := range mutants(2, 50) {
		f.Add(inPEM(der))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, e := range accepted(data) {
			if err := alike(e); err != nil {
				t.Error(err)
			}
		}
		for _, r := range specs {
			e, err := r.Entry("r.example", data, time.Time{})
			if err != nil {
				continue
			}
			if _, err := r.Check(e.Data); err != nil {
				t.Errorf("what is written is not accepted: %v", err)
			}
		}
		b, err := pki.Parse(data, pki.Options{AllowLeaf: true})
		if err != nil {
			return
		}
		again, err := pki.Parse(b.Canonical, pki.Options{AllowLeaf: true, AsPublished: true})
		if err != nil || !bytes.Equal(again.Canonical, b.Canonical) || len(again.Warnings) > len(b.Warnings) {
			t.Errorf("the canonical form has another one: %v", err)
		}
	})
}
