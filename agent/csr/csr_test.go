// SPDX-License-Identifier: Apache-2.0

package csr

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func key(t testing.TB, c elliptic.Curve) crypto.Signer {
	t.Helper()
	k, err := ecdsa.GenerateKey(c, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// request makes any request at all.
func request(t testing.TB, template x509.CertificateRequest, k crypto.Signer) []byte {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &template, k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: blockType, Bytes: der})
}

func subject(cn string, o ...string) x509.CertificateRequest {
	return x509.CertificateRequest{Subject: pkix.Name{CommonName: cn, Organization: o}}
}

func TestWhatIsBuiltPassesTheCheck(t *testing.T) {
	k := key(t, elliptic.P256())
	spki, err := x509.MarshalPKIXPublicKey(k.Public())
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{"worker-1", "a", "7.rack.example.com", strings.Repeat("a", 253)} {
		pem, err := Build(node, k, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Check(pem)
		if err != nil || r.Node != node || !bytes.Equal(r.SPKI, spki) {
			t.Errorf("%s: got %q, %v", node, r.Node, err)
		}
	}
}

func TestBuildRefusesWhatCheckWould(t *testing.T) {
	for _, node := range []string{"", ".", "a..b", "-a", "a-", "A", "a_b", "a b", "a\n", "é", "a/b", "a:b", "a.",
		strings.Repeat("a", 254)} {
		_, err := Build(node, key(t, elliptic.P256()), rand.Reader)
		broken(t, err, ruleNodeName)
	}
	_, err := Build("a", key(t, elliptic.P384()), rand.Reader)
	broken(t, err, ruleKey)
}

func broken(t *testing.T, err error, want rule) {
	t.Helper()
	var v *Violation
	if !errors.As(err, &v) || v.Rule != want {
		t.Errorf("got %v, want the rule %q broken", err, want)
	}
	if err != nil && (strings.ContainsAny(err.Error(), "\n\r\x00") || len(err.Error()) > 300) {
		t.Errorf("not one short line: %q", err)
	}
}

func TestEachRuleBroken(t *testing.T) {
	good := key(t, elliptic.P256())
	_, other, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	built, err := Build("a", good, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	us := User("a")
	withNames := func(r x509.CertificateRequest) x509.CertificateRequest {
		r.Subject = subject(us, Group).Subject
		return r
	}
	forged := bytes.Clone(built)
	block, _ := pem.Decode(forged)
	block.Bytes[len(block.Bytes)-1] ^= 1
	two := subject(us, Group)
	two.Subject.ExtraNames = []pkix.AttributeTypeAndValue{{Type: commonName, Value: User("b")},
		{Type: commonName, Value: us}}
	two.Subject.Organization = nil
	for sentence, c := range map[string]struct {
		pem  []byte
		want rule
	}{
		"nothing":               {nil, ruleEncoding},
		"no PEM":                {[]byte("x"), ruleEncoding},
		"text before the block": {append([]byte("x\n"), built...), ruleEncoding},
		"a block after it":      {append(bytes.Clone(built), built...), ruleEncoding},
		"another type of block": {bytes.ReplaceAll(built, []byte("CERTIFICATE REQUEST"), []byte("CERTIFICATE")),
			ruleEncoding},
		"headers": {pem.EncodeToMemory(&pem.Block{Type: blockType, Bytes: block.Bytes,
			Headers: map[string]string{"A": "b"}}), ruleEncoding},
		"no PKCS#10":                 {pem.EncodeToMemory(&pem.Block{Type: blockType, Bytes: []byte("x")}), ruleEncoding},
		"a block cut off":            {built[:len(built)-30], ruleEncoding},
		"too much":                   {append(bytes.Repeat([]byte("\n"), maxPEM), built...), ruleEncoding},
		"no subject":                 {request(t, subject(""), good), ruleSubject},
		"no organization":            {request(t, subject(us), good), ruleSubject},
		"no common name":             {request(t, subject("", Group, Group), good), ruleSubject},
		"system:masters":             {request(t, subject(us, "system:masters"), good), ruleSubject},
		"system:masters beside ours": {request(t, subject(us, Group, "system:masters"), good), ruleSubject},
		"our group twice":            {request(t, subject("", Group, Group), good), ruleSubject},
		"a kubelet":                  {request(t, subject("system:node:a", Group), good), ruleSubject},
		"a user of another prefix":   {request(t, subject("x"+us, Group), good), ruleSubject},
		"two common names":           {request(t, two, good), ruleSubject},
		"a country": {request(t, x509.CertificateRequest{Subject: pkix.Name{CommonName: us,
			Country: []string{Group}}}, good), ruleSubject},
		"no node":               {request(t, subject(UserPrefix, Group), good), ruleNodeName},
		"an upper-case node":    {request(t, subject(User("A"), Group), good), ruleNodeName},
		"a node with a newline": {request(t, subject(User("a\nb"), Group), good), ruleNodeName},
		"a node of two":         {request(t, subject(User("a:node:b"), Group), good), ruleNodeName},
		"another curve":         {request(t, subject(us, Group), key(t, elliptic.P384())), ruleKey},
		"another algorithm":     {request(t, subject(us, Group), other), ruleKey},
		"a DNS name": {request(t, withNames(x509.CertificateRequest{DNSNames: []string{"kubernetes"}}),
			good), ruleExtensions},
		"an address": {request(t, withNames(x509.CertificateRequest{IPAddresses: []net.IP{{10, 0, 0,
			1}}}), good), ruleExtensions},
		"an e-mail address": {request(t, withNames(x509.CertificateRequest{EmailAddresses: []string{"a@b"}}),
			good), ruleExtensions},
		"basic constraints": {request(t,
			withNames(x509.CertificateRequest{ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 19},
				Value: []byte{0x30, 3, 1, 1, 0xff}}}}), good), ruleExtensions},
		"a signature of somebody else's": {pem.EncodeToMemory(block), ruleSignature},
	} {
		t.Run(sentence, func(t *testing.T) {
			_, err := Check(c.pem)
			broken(t, err, c.want)
		})
	}
}

func TestTheNameFollowsTheContent(t *testing.T) {
	k := key(t, elliptic.P256())
	ask := func(node string, k crypto.Signer) Request {
		pem, err := Build(node, k, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Check(pem)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := ask("a", k)
	name := Name(r, Signer, Usages(), 600)
	if !regexp.MustCompile(`^node-cert-agent-[a-v0-9]{32}$`).MatchString(name) {
		t.Errorf("name %q", name)
	}
	if again := Name(ask("a", k), Signer, []string{"client auth", "digital signature"}, 600); again != name {
		t.Errorf("the same request has the names %s and %s", name, again)
	}
	for sentence, other := range map[string]string{
		"another key":      Name(ask("a", key(t, elliptic.P256())), Signer, Usages(), 600),
		"another node":     Name(ask("b", k), Signer, Usages(), 600),
		"another signer":   Name(r, "example.com/signer", Usages(), 600),
		"another usage":    Name(r, Signer, append(Usages(), "server auth"), 600),
		"fewer usages":     Name(r, Signer, Usages()[:1], 600),
		"joined usages":    Name(r, Signer, []string{"client authdigital signature"}, 600),
		"another lifetime": Name(r, Signer, Usages(), 601),
		"moved bytes": Name(Request{SPKI: append(bytes.Clone(r.SPKI), r.Subject[0]), Subject: r.Subject[1:]}, Signer,
			Usages(), 600),
	} {
		if other == name {
			t.Errorf("%s has the same name", sentence)
		}
	}
}

// hostile are requests as a stranger might send them: well-formed in their encoding and strange in what
// they hold, or the other way round.
func hostile(t testing.TB) map[string][]byte {
	t.Helper()
	deep := bytes.Repeat([]byte{0x30, 0x80}, 4000) // indefinite lengths, one in the other
	rsaKey, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	der := func(pemBytes []byte) []byte { b, _ := pem.Decode(pemBytes); return b.Bytes }
	good := der(request(t, subject(User("a"), Group), key(t, elliptic.P256())))
	spki := bytes.LastIndex(good, []byte{0x03, 0x42, 0x00, 0x04}) // the BIT STRING of a point that is not compressed
	if spki < 0 {
		t.Fatal("no public key")
	}
	off := bytes.Clone(good)
	off[spki+10] ^= 1
	infinity := bytes.Clone(good)
	clear(infinity[spki+3 : spki+3+65])
	return map[string][]byte{
		"nested without end":               deep,
		"a length beyond all memory":       {0x30, 0x88, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		"a length of more bytes than int":  append([]byte{0x30, 0xff}, bytes.Repeat([]byte{0xff}, 127)...),
		"a point that is not on the curve": off,
		"a point of zeros":                 infinity,
		"an RSA key":                       der(request(t, subject(User("a"), Group), rsaKey)),
		"something after the request":      append(bytes.Clone(good), good...),
		"a hundred attributes of a name": der(request(t,
			x509.CertificateRequest{Subject: pkix.Name{OrganizationalUnit: slices.Repeat([]string{Group}, 100),
				CommonName: User("a")}}, rsaKey)),
		"a name that is not UTF-8": bytes.ReplaceAll(good, []byte("node:a"), []byte("node:\xff")),
		"a NUL in the name":        bytes.ReplaceAll(good, []byte("node:a"), []byte("node:\x00")),
	}
}

func TestHostileRequestsBreakARule(t *testing.T) {
	for sentence, der := range hostile(t) {
		_, err := Check(pem.EncodeToMemory(&pem.Block{Type: blockType, Bytes: der}))
		if v := (*Violation)(nil); !errors.As(err, &v) {
			t.Errorf("%s: got %v", sentence, err)
		} else if strings.ContainsFunc(v.Fact, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			t.Errorf("%s: not one line: %q", sentence, v.Fact)
		}
	}
}

func TestNoByteOfARequestMayChangeOrBeMissing(t *testing.T) {
	built, err := Build("worker-1", key(t, elliptic.P256()), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(built)
	for i, b := range block.Bytes {
		for sentence, der := range map[string][]byte{
			"inverted": slices.Concat(block.Bytes[:i], []byte{^b}, block.Bytes[i+1:]),
			"one more": slices.Concat(block.Bytes[:i], []byte{b + 1}, block.Bytes[i+1:]),
			"missing":  slices.Concat(block.Bytes[:i], block.Bytes[i+1:]),
			"the last": block.Bytes[:i],
		} {
			if r, err := Check(pem.EncodeToMemory(&pem.Block{Type: blockType, Bytes: der})); err == nil {
				t.Errorf("with byte %d %s it is accepted as %+v", i, sentence, r)
			}
		}
	}
}

func FuzzCheck(f *testing.F) {
	for _, der := range hostile(f) {
		f.Add(der)
	}
	k := key(f, elliptic.P256())
	built, err := Build("worker-1", k, rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	block, _ := pem.Decode(built)
	f.Add(block.Bytes)
	block, _ = pem.Decode(request(f, x509.CertificateRequest{Subject: pkix.Name{CommonName: "x"}, DNSNames: []string{"y"}},
		k))
	f.Add(block.Bytes)
	f.Fuzz(func(t *testing.T, der []byte) {
		r, err := Check(pem.EncodeToMemory(&pem.Block{Type: blockType, Bytes: der}))
		var v *Violation
		switch {
		case err == nil && (!IsDNSName(r.Node) || len(r.SPKI) == 0 || len(r.Subject) == 0):
			t.Errorf("accepted with %+v", r)
		case err != nil && !errors.As(err, &v):
			t.Errorf("no rule in %v", err)
		}
		_, _ = Check(der)
	})
}

func TestANameOfOursIsKnownByItsForm(t *testing.T) {
	digest := strings.Repeat("0v", 16)
	for name, want := range map[string]bool{
		NamePrefix + digest:             true,
		NamePrefix + digest + "0":       false,
		NamePrefix + digest[1:]:         false,
		NamePrefix + digest[1:] + "w":   false,
		NamePrefix + digest[1:] + "A":   false,
		"x" + NamePrefix + digest:       false,
		strings.Repeat("0", 32):         false,
		"":                              false,
		Name(Request{}, Signer, nil, 1): true,
	} {
		if Named(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
}
