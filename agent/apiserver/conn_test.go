// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// known is what the server says to who has the token.
const known = "200 Bearer good node-cert-agent HTTP/2"

// reissuing is the server of tests with a certificate of the authority's, and of another's once that is named.
func reissuing(t *testing.T, by *testpki.Authority) (s *httptest.Server, reissued func(by *testpki.Authority)) {
	t.Helper()
	var serving atomic.Pointer[tls.Certificate]
	reissued = func(by *testpki.Authority) {
		c := by.Issue(x509.Certificate{NotAfter: by.Cert.NotAfter, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}).TLS()
		serving.Store(&c)
	}
	reissued(by)
	s = httptest.NewUnstartedServer(whoami)
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{NextProtos: []string{"h2"}, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return &tls.Config{ClientAuth: tls.RequestClientCert, NextProtos: []string{"h2"},
			Certificates: []tls.Certificate{*serving.Load()}}, nil
	}}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s, reissued
}

func TestACAFileThatIsReplacedVerifiesTheNextConnections(t *testing.T) {
	first, next := testpki.New("first", testpki.ECDSA), testpki.New("next", testpki.ECDSA)
	s, reissued := reissuing(t, first)
	ca := filepath.Join(t.TempDir(), "ca.crt")
	save(t, ca, first.PEM())
	c, err := FromKubeconfig(kubeconfig(t, "server: '"+s.URL+"', certificate-authority: "+ca, "token: good"))
	if err != nil {
		t.Fatal(err)
	}
	later := func() { c.client.Transport.(*refreshing).looked = time.Time{} }
	if got := get(c, "/"); got != known {
		t.Fatalf("before: %s", got)
	}
	reissued(next)
	c.HTTPClient().CloseIdleConnections()
	if got := get(c, "/"); !strings.Contains(got, "unknown authority") {
		t.Fatalf("with another CA at the server: %s", got)
	}
	save(t, ca, []byte("half a fi"))
	later()
	if got := get(c, "/"); !strings.Contains(got, "unknown authority") {
		t.Errorf("with a CA file that holds none: %s", got)
	}
	save(t, ca, next.PEM())
	later()
	if got := get(c, "/"); got != known {
		t.Errorf("with its CA in the file: %s", got)
	}
}

func TestASnapshotNeedsNoFileAnyMore(t *testing.T) {
	authority := testpki.New("cluster", testpki.ECDSA)
	server, _ := reissuing(t, authority)
	dir := t.TempDir()
	mine := authority.Client("node-a")
	for name, b := range map[string][]byte{
		"ca.crt": authority.PEM(), "cert": mine.Cert, "key": mine.Key, "token": []byte("good\n"),
	} {
		save(t, filepath.Join(dir, name), b)
	}
	trust := "server: '" + server.URL + "', certificate-authority: " + dir + "/ca.crt"
	byCert, err := Snapshot(kubeconfig(t, trust, "client-certificate: "+dir+"/cert, client-key: "+dir+"/key"))
	if err != nil {
		t.Fatal(err)
	}
	byToken, err := Snapshot(kubeconfig(t, trust, "tokenFile: "+dir+"/token"))
	if err != nil {
		t.Fatal(err)
	}
	for _, conn := range []*Conn{byCert, byToken} {
		if c := conn.config.transport; c.TLS.CertFile+c.TLS.KeyFile+c.TLS.CAFile+c.BearerTokenFile != "" {
			t.Error("it names files")
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if got := get(byCert, "/"); got != "200 node-a node-cert-agent HTTP/2" {
		t.Errorf("by certificate: %s", got)
	}
	if got := get(byToken, "/"); got != known {
		t.Errorf("by token: %s", got)
	}
}
