// SPDX-License-Identifier: Apache-2.0

package pair

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

func open(path string, key bool, cas ...*testpki.Authority) Opened {
	o := Opened{Path: path}
	for _, a := range cas {
		o.Certs = append(o.Certs, a.Cert)
	}
	if key {
		o.Key = cas[0].Key.Public()
	}
	return o
}

func TestTheCAIsTheOneThatSigned(t *testing.T) {
	ca, other := testpki.New("kubernetes", testpki.ECDSA), testpki.New("kubernetes", testpki.ECDSA)
	p := ca.Client("kube-apiserver")
	leaf, err := Certificate(append([]byte("text before\n"), append(p.Key, p.Cert...)...))
	if err != nil {
		t.Fatal(err)
	}
	key, err := KeyOf(append(p.Cert, p.Key...))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		authorities []Opened
		path        string
		here        bool
	}{
		"none":                    {nil, "", false},
		"one of the same name":    {[]Opened{open("/a", true, other)}, "", false},
		"with its key":            {[]Opened{open("/a", true, ca)}, "/a", true},
		"without its key":         {[]Opened{open("/a", false, ca)}, "/a", false},
		"second in its file":      {[]Opened{open("/a", true, other, ca)}, "/a", false},
		"in two files, one a key": {[]Opened{open("/a", false, ca), open("/b", true, ca), open("/c", false, ca)}, "/b", true},
	} {
		var f Facts
		f.Examine(leaf, key, c.authorities)
		switch {
		case f.Problem != "" || f.Leaf.Subject != "CN=kube-apiserver":
			t.Errorf("%s: %+v", name, f)
		case f.CA == nil && c.path != "", f.CA != nil && (f.CA.Path != c.path || f.CA.KeyHere != c.here):
			t.Errorf("%s: CA %+v, want %q, key here %v", name, f.CA, c.path, c.here)
		}
	}
}

func TestHalvesThatDoNotBelongTogetherAreSaid(t *testing.T) {
	ca := testpki.New("ca", testpki.ECDSA)
	leaf, _ := Certificate(ca.Client("a").Cert)
	key, _ := KeyOf(ca.Client("b").Key)
	var f Facts
	f.Examine(leaf, key, nil)
	if !strings.Contains(f.Problem, "do not belong together") {
		t.Errorf("problem %q", f.Problem)
	}
}

func TestNoErrorRepeatsAKey(t *testing.T) {
	secret := "c2VjcmV0LXNlY3JldC1zZWNyZXQ="
	for _, text := range []string{"", secret, "-----BEGIN PRIVATE KEY-----\n" + secret + "\n-----END PRIVATE KEY-----\n",
		"-----BEGIN CERTIFICATE-----\n" + secret + "\n-----END CERTIFICATE-----\n"} {
		_, err := KeyOf([]byte(text))
		_, err2 := Certificate([]byte(text))
		if err == nil || err2 == nil || strings.Contains(err.Error()+err2.Error(), "c2Vj") {
			t.Errorf("%q: %v, %v", text, err, err2)
		}
	}
	if len(Certificates([]byte("-----BEGIN CERTIFICATE-----\n"+secret+"\n-----END CERTIFICATE-----\n"))) > 0 {
		t.Error("a certificate was made of nothing")
	}
}

func TestWhatIsSaidOfACertificateIsFitToPrint(t *testing.T) {
	p := testpki.New("ca", testpki.ECDSA).Issue(x509.Certificate{Subject: pkix.Name{CommonName: "a\x1b[31m\nb"}})
	leaf, err := Certificate(p.Cert)
	if err != nil {
		t.Fatal(err)
	}
	if s := Describe(leaf).Subject; strings.ContainsAny(s, "\x1b\n") {
		t.Errorf("subject %q", s)
	}
}
