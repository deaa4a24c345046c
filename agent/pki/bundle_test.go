// SPDX-License-Identifier: Apache-2.0

package pki_test

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/objects"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

var (
	authority = testpki.New("ca-one", testpki.ECDSA)
	one       = authority.PEM()
	two       = testpki.NewCA("ca-two")
	leaf      = authority.Issue(x509.Certificate{Subject: pkix.Name{CommonName: "leaf"}}).Cert
	expired   = testpki.NewFrom(x509.Certificate{Subject: pkix.Name{CommonName: "old"}, NotBefore: time.Unix(1e9, 0),
		NotAfter: time.Unix(1.1e9, 0),
		IsCA:     true, BasicConstraintsValid: true}, testpki.ECDSA).PEM()
	future = testpki.NewFrom(x509.Certificate{Subject: pkix.Name{CommonName: "future"}, NotBefore: time.Unix(4e9, 0),
		NotAfter: time.Unix(4.1e9, 0),
		IsCA:     true, BasicConstraintsValid: true}, testpki.ECDSA).PEM()
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
		"one CA is a bundle":                     {data: one, want: 1},
		"two CAs are a bundle":                   {data: join(one, two), want: 2},
		"a CA that is not yet valid is accepted": {data: future, want: 1, opt: pki.Options{Now: now}},
		"an expired CA is a warning": {data: join(one, expired), opt: pki.Options{Now: now}, want: 2,
			warn: []string{"an expired certificate"}},
		"without a clock nothing is expired": {data: expired, want: 1},
		"text outside blocks is a warning": {data: join([]byte("# corp root\n"), one), want: 1,
			warn: []string{"text outside blocks"}},
		"text after the last block is a warning": {data: join(one, []byte("the end\n")), want: 1,
			warn: []string{"text outside blocks"}},
		"blank lines are nothing": {data: join([]byte("\n \n"), one, []byte("\n\n")), want: 1},
		"white space at line ends is a warning": {data: bytes.ReplaceAll(one, []byte("\n"), []byte(" \t\n")),
			want: 1, warn: []string{"white space at line ends"}},
		"a rule of dashes is text": {data: join([]byte("# -----\n-----\n"), one), want: 1,
			warn: []string{"text outside blocks"}},
		"CRLF is a warning": {data: bytes.ReplaceAll(one, []byte("\n"), []byte("\r\n")), want: 1,
			warn: []string{"CRLF line ends"}},
		"duplicates are one certificate and one warning": {data: join(many...), want: 1,
			warn: []string{"a certificate twice"}},
		"a leaf beside a CA is a warning": {data: join(one, leaf), want: 2,
			warn: []string{"a certificate that is not a CA"}},
		"a leaf alone anchors nothing":          {data: leaf, refuse: "can anchor trust"},
		"a registry may be trusted by its leaf": {data: leaf, opt: pki.Options{AllowLeaf: true}, want: 1},
		"strict refuses what is only warned about": {data: join(one, one), opt: pki.Options{Strict: true},
			refuse: "strict: a certificate twice"},
		"empty bytes hold no certificate":      {data: nil, refuse: "no certificate"},
		"one newline holds no certificate":     {data: []byte("\n"), refuse: "no certificate"},
		"text alone holds no certificate":      {data: []byte("certificate"), refuse: "no certificate"},
		"a private key is refused":             {data: join(one, authority.KeyPEM()), refuse: "private key"},
		"half a private key is refused as one": {data: join(one, authority.KeyPEM()[:60]), refuse: "private key"},
		"another kind of block is refused": {data: join(one,
			pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: []byte("x")})), refuse: `block 2 is a "X509 CRL"`},
		"a block that is no certificate is refused": {data: join(one,
			pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")})), refuse: "block 2 is not a certificate"},
		"a damaged block in the middle is not skipped": {data: join(one, damaged(two), one),
			refuse: "block 2 does not decode"},
		"a damaged first block is not skipped": {data: join(damaged(one), two), refuse: "block 1 does not decode"},
		"a damaged last block is not skipped":  {data: join(one, damaged(two)), refuse: "block 2 does not decode"},
		"a truncated last block is refused": {data: join(one, two[:len(two)/2]),
			refuse: "block 2 does not decode or is cut off"},
		"a block without its end line is refused": {data: join(one[:len(one)-20], two),
			refuse: "block 1 does not decode or is cut off"},
		"an end without a begin is refused": {data: join([]byte("-----END CERTIFICATE-----\n"), one),
			refuse: "does not decode"},
		"more than 1 MiB is refused": {data: bytes.Repeat([]byte("#"), pki.MaxBytes+1), refuse: "more than 1048576"},
		"DER is not PEM":             {data: authority.Cert.Raw, refuse: "no certificate"},
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

// in is a bundle of two with something in the place of the first one's line, which the body's first is
// number 1 of.
func in(line int, text string) []byte {
	lines := strings.SplitAfter(string(one), "\n")
	lines[line] = text
	return join([]byte(strings.Join(lines, "")), two)
}

func TestWhatProgramsReadDifferentlyIsRefused(t *testing.T) {
	second := strings.SplitAfter(string(one), "\n")[1]
	for sentence, c := range map[string]struct {
		data   []byte
		refuse string
	}{
		"headers, with which a kubelet skips the block": {withHeader(one), "block 1 has PEM headers"},
		"headers beside a good block": {join(one, withHeader(two)),
			"block 2 has PEM headers"},
		"a line like a header": {in(1, "A: b\n"+second), "block 1 has PEM headers"},
		"a blank line, which ends the headers for OpenSSL and p11-kit": {in(1, second+"\n"), "block 1 has a blank line"},
		"a line of white space": {in(1, second+" \t\n"), "block 1 has a blank line"},
		"OpenSSL's older label": {bytes.ReplaceAll(one, []byte(" CERT"), []byte(" X509 CERT")),
			`is a "X509 CERTIFICATE"`},
		"OpenSSL's label for more than a certificate": {bytes.ReplaceAll(one, []byte(" CERT"),
			[]byte(" TRUSTED CERT")), `is a "TRUSTED CERTIFICATE"`},
		"p11-kit's own format": {join([]byte("[p11-kit-object-v1]\nclass: certificate\n"), one),
			"p11-kit"},
		"the mark of that format in a comment":   {join(one, []byte("# see [p11-kit-object-v1]\n")), "p11-kit"},
		"a NUL, which ends a text in C":          {join(one, []byte("\x00\n"), two), "control character 0x00"},
		"a form feed, which is white space in C": {in(1, "\f"+second), "control character 0x0c"},
		"a carriage return inside a line":        {in(1, second[:20]+"\r"+second[20:]), "control character 0x0d"},
		"lines that end in two":                  {in(1, second[:64]+"\r\r\n"), "control character 0x0d"},
		"a text that ends in one":                {join(one, []byte("end\r")), "control character 0x0d"},
		"a DEL":                                  {join([]byte("\x7f\n"), one), "control character 0x7f"},
		"white space in front of a line":         {in(1, " "+second), "does not decode"},
		"white space in front of a beginning":    {join([]byte(" "), one), "does not decode"},
		"a beginning that is commented out":      {join(one, []byte("# "), two), "does not decode"},
		"a beginning behind a line as long as OpenSSL reads": {join(one, bytes.Repeat([]byte("x"), 254), two),
			"does not decode"},
		"a byte order mark":   {join([]byte("\xef\xbb\xbf"), one), "does not decode"},
		"two beginnings":      {join(beginning, one), "does not decode"},
		"a block in one line": {bytes.ReplaceAll(one, []byte("\n"), nil), "does not decode"},
		"nothing between beginning and end": {join(beginning, []byte("-----END CERTIFICATE-----\n"), one),
			"does not decode"},
		"padding in the middle":                   {in(1, "AA==\n"+second), "does not decode"},
		"an element after the certificate's last": {longer(one), "is not encoded as DER"},
	} {
		t.Run(sentence, func(t *testing.T) {
			_, err := pki.Parse(c.data, pki.Options{AllowLeaf: true})
			if err == nil || !strings.Contains(err.Error(), c.refuse) {
				t.Errorf("got %v, want a refusal with %q", err, c.refuse)
			}
		})
	}
}

var beginning = []byte("-----BEGIN CERTIFICATE-----\n")

// longer is a certificate with a NULL after its signature, which crypto/x509 does not mind.
func longer(b []byte) []byte {
	block, _ := pem.Decode(b)
	der := append(slices.Clone(block.Bytes), 5, 0)
	n := len(der) - 4
	der[2], der[3] = byte(n>>8), byte(n)
	return pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: der})
}

func TestTheCanonicalFormHasTheCertificatesAndNothingElse(t *testing.T) {
	want := join(one, two)
	for sentence, data := range map[string][]byte{
		"as it is":         want,
		"CRLF":             bytes.ReplaceAll(want, []byte("\n"), []byte("\r\n")),
		"comments":         join([]byte("# one\n"), one, []byte("\n# two\n"), two, []byte("# end\n")),
		"duplicates":       join(one, two, one),
		"no final newline": bytes.TrimSpace(want),
		"other lines":      join(wide(one), two),
	} {
		b, err := pki.Parse(data, pki.Options{})
		if err != nil || !bytes.Equal(b.Canonical, want) {
			t.Errorf("%s: %v\n%s", sentence, err, b.Canonical)
		}
		for i, c := range b.Certs {
			if !bytes.Equal(c.PEM(), [][]byte{one, two}[i]) {
				t.Errorf("%s: certificate %d is\n%s", sentence, i+1, c.PEM())
			}
		}
	}
}

// wide is a certificate with all its text in one line.
func wide(b []byte) []byte {
	block, _ := pem.Decode(b)
	return fmt.Appendf(nil, "%s%s\n-----END CERTIFICATE-----\n", beginning, base64.StdEncoding.EncodeToString(block.Bytes))
}

func TestLinesOfAnyLengthAreReadAndNotWritten(t *testing.T) {
	if _, err := pki.Parse(wide(one), pki.Options{}); err != nil {
		t.Errorf("where the canonical form is written: %v", err)
	}
	blank := bytes.Replace(one, []byte("\n"), append(bytes.Repeat([]byte(" "), 50), '\n'), 1)
	for _, data := range [][]byte{wide(one), blank} {
		_, err := pki.Parse(data, pki.Options{AsPublished: true})
		if err == nil || !strings.Contains(err.Error(), "more than 76") {
			t.Errorf("where the bytes themselves are: %v", err)
		}
	}
}

func TestACanonicalFormThatIsTooLargeIsRefused(t *testing.T) {
	var data []byte
	for i := 0; ; i++ {
		c := wide(authority.Issue(x509.Certificate{Subject: pkix.Name{CommonName: fmt.Sprint(i)},
			ExtraExtensions: []pkix.Extension{{Id: []int{1, 3, 6, 1, 4, 1, 32473, 1}, Value: make([]byte, 3000)}}}).Cert)
		if len(data)+len(c) > pki.MaxBytes {
			break
		}
		data = append(data, c...)
	}
	_, err := pki.Parse(data, pki.Options{AllowLeaf: true})
	if err == nil || !strings.Contains(err.Error(), "in lines of 64") {
		t.Errorf("%d bytes: %v", len(data), err)
	}
}

func TestWhatIsSalvagedCanBeWritten(t *testing.T) {
	c := pki.Read(join(one, longer(two), damaged(two), withHeader(two)))
	if c.Whole || len(c.Certs) != 2 {
		t.Fatalf("salvaged %d certificates, whole: %v", len(c.Certs), c.Whole)
	}
	file := join(c.Certs[0].PEM(), c.Certs[1].PEM())
	if _, err := pki.Parse(file, pki.Options{Strict: true, AsPublished: true}); err != nil {
		t.Error(err)
	}
}

func TestMoreThan500CertificatesAreRefused(t *testing.T) {
	var b []byte
	for i := range pki.MaxCerts + 1 {
		b = append(b, authority.Issue(x509.Certificate{Subject: pkix.Name{CommonName: fmt.Sprint(i)}}).Cert...)
	}
	if _, err := pki.Parse(b, pki.Options{AllowLeaf: true}); err == nil ||
		!strings.Contains(err.Error(), "more than 500") {
		t.Errorf("got %v", err)
	}
}

func TestAReasonNeverRepeatsContent(t *testing.T) {
	const marker = "bWFya2Vy"
	for _, data := range [][]byte{
		[]byte("-----BEGIN PRIVATE KEY-----\n" + marker + "\n-----END PRIVATE KEY-----\n"),
		[]byte("-----BEGIN CERTIFICATE-----\n" + marker + "\n-----END CERTIFICATE-----\n"),
		[]byte("-----BEGIN CERTIFICATE-----\n" + marker),
		[]byte("-----BEGIN CERTIFICATE-----" + marker + "-----END CERTIFICATE-----\n"),
		[]byte("-----BEGIN " + marker + "\n"),
		[]byte("-----BEGIN CERTIFICATE-----\nKey: " + marker + "\n-----END CERTIFICATE-----\n"),
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

// FuzzParse: the canonical form of whatever is accepted is its own, and holds the same certificates. That
// other programs read the same is FuzzReading's, in tests/readers.
func FuzzParse(f *testing.F) {
	for _, b := range [][]byte{one, join(one, two), withHeader(one), damaged(one), leaf, authority.KeyPEM(),
		[]byte("-----BEGIN CERTIFICATE-----")} {
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
		again, err := pki.Parse(b.Canonical, pki.Options{AllowLeaf: true, Strict: true, AsPublished: true})
		if err != nil || !bytes.Equal(again.Canonical, b.Canonical) {
			t.Fatalf("the canonical form of what is accepted has another one: %v", err)
		}
		if added, removed := pki.Diff(b.Certs, again.Certs); added != nil || removed != nil {
			t.Errorf("reading the canonical form changed the set")
		}
	})
}
