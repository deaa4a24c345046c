// SPDX-License-Identifier: Apache-2.0

package pki_test

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/tests/objects"
	"github.com/node-cert-agent/node-cert-agent/tests/testpki"
)

var (
	authority = testpki.New("ca-one", testpki.ECDSA)
	one       = authority.PEM()
	two       = testpki.NewCA("ca-two")
	leaf      = authority.Issue(x509.Certificate{Subject: pkix.Name{CommonName: "leaf"}}).Cert
	expired   = testpki.NewFrom(x509.Certificate{Subject: pkix.Name{CommonName: "old"}, NotBefore: time.Unix(1e9, 0), NotAfter: time.Unix(1.1e9, 0),
		IsCA: true, BasicConstraintsValid: true}, testpki.ECDSA).PEM()
	future = testpki.NewFrom(x509.Certificate{Subject: pkix.Name{CommonName: "future"}, NotBefore: time.Unix(4e9, 0), NotAfter: time.Unix(4.1e9, 0),
		IsCA: true, BasicConstraintsValid: true}, testpki.ECDSA).PEM()
	now = time.Unix(1.8e9, 0)
)

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// damaged is b with the base64 text of its body spoilt.
func damaged(b []byte) []byte { return bytes.Replace(b, []byte("\nMII"), []byte("\n!!!"), 1) }

func withHeader(b []byte) []byte {
	block, _ := pem.Decode(b)
	block.Headers = map[string]string{"Friendly": "name"}
	return pem.EncodeToMemory(block)
}

func TestParse(t *testing.T) {
	many := slices.Repeat([][]byte{one}, 3)
	for sentence, c := range map[string]struct {
		data   []byte
		opt    pki.Options
		want   int      // certificates
		warn   []string // warnings
		refuse string   // part of the reason
	}{
		"one CA is a bundle":                             {data: one, want: 1},
		"two CAs are a bundle":                           {data: join(one, two), want: 2},
		"a CA that is not yet valid is accepted":         {data: future, want: 1, opt: pki.Options{Now: now}},
		"an expired CA is a warning":                     {data: join(one, expired), opt: pki.Options{Now: now}, want: 2, warn: []string{"an expired certificate"}},
		"without a clock nothing is expired":             {data: expired, want: 1},
		"text outside blocks is a warning":               {data: join([]byte("# corp root\n"), one), want: 1, warn: []string{"text outside blocks"}},
		"text after the last block is a warning":         {data: join(one, []byte("the end\n")), want: 1, warn: []string{"text outside blocks"}},
		"blank lines are nothing":                        {data: join([]byte("\n \n"), one, []byte("\n\n")), want: 1},
		"headers are a warning":                          {data: withHeader(one), want: 1, warn: []string{"PEM headers"}},
		"CRLF is a warning":                              {data: bytes.ReplaceAll(one, []byte("\n"), []byte("\r\n")), want: 1, warn: []string{"CRLF line ends"}},
		"duplicates are one certificate and one warning": {data: join(many...), want: 1, warn: []string{"a certificate twice"}},
		"a leaf beside a CA is a warning":                {data: join(one, leaf), want: 2, warn: []string{"a certificate that is not a CA"}},
		"a leaf alone anchors nothing":                   {data: leaf, refuse: "can anchor trust"},
		"a registry may be trusted by its leaf":          {data: leaf, opt: pki.Options{AllowLeaf: true}, want: 1},
		"strict refuses what is only warned about":       {data: join(one, one), opt: pki.Options{Strict: true}, refuse: "strict row: a certificate twice"},
		"empty bytes hold no certificate":                {data: nil, refuse: "no certificate"},
		"one newline holds no certificate":               {data: []byte("\n"), refuse: "no certificate"},
		"text alone holds no certificate":                {data: []byte("certificate"), refuse: "no certificate"},
		"a private key is refused":                       {data: join(one, authority.KeyPEM()), refuse: "private key"},
		"half a private key is refused as one":           {data: join(one, authority.KeyPEM()[:60]), refuse: "private key"},
		"another kind of block is refused":               {data: join(one, pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: []byte("x")})), refuse: `block 2 is a "X509 CRL"`},
		"a block that is no certificate is refused":      {data: join(one, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")})), refuse: "block 2 is not a certificate"},
		"a damaged block in the middle is not skipped":   {data: join(one, damaged(two), one), refuse: "block 2 does not decode"},
		"a damaged first block is not skipped":           {data: join(damaged(one), two), refuse: "block 1 does not decode"},
		"a damaged last block is not skipped":            {data: join(one, damaged(two)), refuse: "block 2 does not decode"},
		"a truncated last block is refused":              {data: join(one, two[:len(two)/2]), refuse: "block 2 does not decode or is cut off"},
		"a block without its end line is refused":        {data: join(one[:len(one)-20], two), refuse: "block 1 does not decode or is cut off"},
		"an end without a begin is refused":              {data: join([]byte("-----END CERTIFICATE-----\n"), one), refuse: "does not decode"},
		"more than 1 MiB is refused":                     {data: bytes.Repeat([]byte("#"), pki.MaxBytes+1), refuse: "more than 1048576"},
		"DER is not PEM":                                 {data: authority.Cert.Raw, refuse: "no certificate"},
	} {
		t.Run(sentence, func(t *testing.T) {
			b, err := pki.Parse(c.data, c.opt)
			if c.want == 0 {
				if err == nil || !strings.Contains(err.Error(), c.refuse) {
					t.Fatalf("got %v, want a refusal with %q", err, c.refuse)
				}
				return
			}
			if err != nil || len(b.Certs) != c.want || !slices.Equal(b.Warnings, c.warn) {
				t.Errorf("got %d certificates, warnings %q, %v; want %d and %q", len(b.Certs), b.Warnings, err, c.want, c.warn)
			}
		})
	}
}

func TestMoreThan500CertificatesAreRefused(t *testing.T) {
	var b []byte
	for i := range pki.MaxCerts + 1 {
		b = append(b, authority.Issue(x509.Certificate{Subject: pkix.Name{CommonName: fmt.Sprint(i)}}).Cert...)
	}
	if _, err := pki.Parse(b, pki.Options{AllowLeaf: true}); err == nil || !strings.Contains(err.Error(), "more than 500") {
		t.Errorf("got %v", err)
	}
}

func TestAReasonNeverRepeatsContent(t *testing.T) {
	const marker = "bWFya2Vy"
	for _, data := range [][]byte{
		[]byte("-----BEGIN PRIVATE KEY-----\n" + marker + "\n-----END PRIVATE KEY-----\n"),
		[]byte("-----BEGIN CERTIFICATE-----\n" + marker + "\n-----END CERTIFICATE-----\n"),
		[]byte("-----BEGIN CERTIFICATE-----\n" + marker),
	} {
		if _, err := pki.Parse(data, pki.Options{}); err == nil || strings.Contains(err.Error(), marker) {
			t.Errorf("reason for %.30q is %v", data, err)
		}
	}
}

func TestDiffComparesSets(t *testing.T) {
	before, _ := pki.Parse(join(one, two), pki.Options{})
	after, _ := pki.Parse(join(two, future), pki.Options{})
	added, removed := pki.Diff(before.Certs, after.Certs)
	if len(added) != 1 || added[0].Subject != "CN=future" || len(removed) != 1 || removed[0].Subject != "CN=ca-one" {
		t.Errorf("added %v, removed %v", added, removed)
	}
	reordered, _ := pki.Parse(join(two, one), pki.Options{})
	if added, removed := pki.Diff(before.Certs, reordered.Certs); added != nil || removed != nil {
		t.Errorf("another order is a change: added %v, removed %v", added, removed)
	}
	if e := pki.EarliestExpiry(after.Certs); !e.Before(time.Unix(4e9, 0)) {
		t.Errorf("earliest expiry is %v", e)
	}
}

// checkRead: to salvage what can be read of a file never finds less than Parse does, and calls whole
// exactly what Parse takes.
func checkRead(t *testing.T, data []byte) {
	c := pki.Read(data)
	b, err := pki.Parse(data, pki.Options{AllowLeaf: true})
	if c.Whole != (err == nil) {
		t.Errorf("whole is %v, and the bundle is refused with %v", c.Whole, err)
	}
	if _, removed := pki.Diff(b.Certs, c.Certs); removed != nil {
		t.Errorf("of %d certificates %d are not found", len(b.Certs), len(removed))
	}
}

// FuzzParse: whatever is accepted parses the same when its certificates are printed and read again.
func FuzzParse(f *testing.F) {
	for _, b := range [][]byte{one, join(one, two), withHeader(one), damaged(one), leaf, authority.KeyPEM(), []byte("-----BEGIN CERTIFICATE-----")} {
		f.Add(b)
	}
	for _, b := range objects.Contents() {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		checkRead(t, data)
		b, err := pki.Parse(data, pki.Options{AllowLeaf: true})
		if err != nil {
			return
		}
		var printed []byte
		for _, c := range b.Certs {
			printed = append(printed, c.PEM()...)
		}
		again, err := pki.Parse(printed, pki.Options{AllowLeaf: true, Strict: true})
		if err != nil {
			t.Fatalf("accepted, but its own certificates are not: %v", err)
		}
		if added, removed := pki.Diff(b.Certs, again.Certs); added != nil || removed != nil {
			t.Errorf("printing and reading again changed the set")
		}
	})
}
