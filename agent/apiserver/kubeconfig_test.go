// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// pair is a self-signed certificate and its key in PEM.
func pair(t *testing.T, name string) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}

// whoami answers with who it thinks the client is, and the protocol.
var whoami = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/away" {
		http.Redirect(w, r, "/", http.StatusFound)
	}
	who := r.Header.Get("Authorization")
	if len(r.TLS.PeerCertificates) > 0 {
		who = r.TLS.PeerCertificates[0].Subject.CommonName
	}
	fmt.Fprintf(w, "%s %s HTTP/%d", who, r.UserAgent(), r.ProtoMajor)
})

func server(t *testing.T) (s *httptest.Server, ca []byte) {
	t.Helper()
	s = httptest.NewUnstartedServer(whoami)
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

// kubeconfig renders one with these fields in cluster and user.
func kubeconfig(t *testing.T, cluster, user string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	save(t, path, []byte(`apiVersion: v1
kind: Config
preferences: {}
clusters:
- name: c
  cluster: {`+cluster+`}
users:
- name: u
  user: {`+user+`}
contexts:
- name: x
  context: {cluster: c, user: u}
current-context: x
`))
	return path
}

func save(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func data(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

// get is the status and the body of an answer, or the error.
func get(c *Conn, path string) string {
	res, err := c.HTTPClient().Get(c.Server().JoinPath(path).String())
	if err != nil {
		return err.Error()
	}
	defer res.Body.Close()
	b := make([]byte, 1000)
	n, _ := res.Body.Read(b)
	return fmt.Sprint(res.StatusCode, " ", string(b[:n]))
}

func TestAcceptedCredentials(t *testing.T) {
	s, ca := server(t)
	cert, key := pair(t, "node-a")
	dir := t.TempDir()
	for name, b := range map[string][]byte{"ca.crt": ca, "cert": cert, "key": key, "token": []byte("abc\n")} {
		save(t, filepath.Join(dir, name), b)
	}
	trust := "server: '" + s.URL + "', certificate-authority-data: " + data(ca)
	for sentence, c := range map[string]struct{ cluster, user, want string }{
		"certificate and key as data": {trust, "client-certificate-data: " + data(cert) + ", client-key-data: " + data(key),
			"200 node-a node-cert-agent HTTP/2"},
		"certificate and key as files": {trust, "client-certificate: " + dir + "/cert, client-key: " + dir + "/key",
			"200 node-a node-cert-agent HTTP/2"},
		"a token":      {trust, "token: abc", "200 Bearer abc node-cert-agent HTTP/2"},
		"a token file": {trust, "tokenFile: " + dir + "/token", "200 Bearer abc node-cert-agent HTTP/2"},
		"CAs as a file": {"server: '" + s.URL + "', certificate-authority: " + dir + "/ca.crt", "token: abc",
			"200 Bearer abc node-cert-agent HTTP/2"},
		"what kubectl writes needlessly": {trust + ", insecure-skip-tls-verify: false, extensions: [{name: x, extension: " +
			"{a: b}}]", "token: abc, exec: null",
			"200 Bearer abc node-cert-agent HTTP/2"},
	} {
		t.Run(sentence, func(t *testing.T) {
			i, err := FromKubeconfig(kubeconfig(t, c.cluster, c.user))
			if err != nil {
				t.Fatal(err)
			}
			if got := get(i, "/"); got != c.want {
				t.Errorf("server says %q, want %q", got, c.want)
			}
		})
	}
}

func TestRelativePathsStartAtTheKubeconfig(t *testing.T) {
	_, ca := server(t)
	path := kubeconfig(t, "server: 'https://x', certificate-authority: ca.crt", "token: abc")
	save(t, filepath.Join(filepath.Dir(path), "ca.crt"), ca)
	if _, err := FromKubeconfig(path); err != nil {
		t.Error(err)
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	s, ca := server(t)
	i, err := FromKubeconfig(kubeconfig(t, "server: '"+s.URL+"', certificate-authority-data: "+data(ca), "token: abc"))
	if err != nil {
		t.Fatal(err)
	}
	if got := get(i, "/away"); !strings.HasPrefix(got, "302") {
		t.Errorf("server says %q", got)
	}
}

func TestARenewedCertificateIsUsedForTheNextConnection(t *testing.T) {
	s, ca := server(t)
	s.Config.SetKeepAlivesEnabled(false)
	dir := t.TempDir()
	renew := func(name string) {
		cert, key := pair(t, name)
		save(t, dir+"/cert", cert)
		save(t, dir+"/key", key)
	}
	renew("old")
	i, err := FromKubeconfig(kubeconfig(t, "server: '"+s.URL+"', certificate-authority-data: "+data(ca),
		"client-certificate: "+dir+"/cert, client-key: "+dir+"/key"))
	if err != nil {
		t.Fatal(err)
	}
	renew("new")
	// client-go keeps what it read for a second, and then breaks the connection that finds out.
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for get(i, "/") != "200 new node-cert-agent HTTP/2" {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatal("the old certificate is still used")
		}
	}
}

func TestRefusedKubeconfigs(t *testing.T) {
	_, ca := server(t)
	cert, key := pair(t, "n")
	where, leaf := "server: 'https://x', ", filepath.Join(t.TempDir(), "leaf")
	save(t, leaf, cert)
	trust := where + "certificate-authority-data: " + data(ca)
	for sentence, c := range map[string]struct{ cluster, user, want string }{
		"exec": {trust, "token: geheim, exec: {command: geheim}",
			"line 9: users[].user.exec: running a program is not accepted; " + acceptedCredentials},
		"auth-provider": {trust, "auth-provider: {name: geheim}",
			"line 9: users[].user.auth-provider: plug-ins are not accepted; " + acceptedCredentials},
		"basic auth": {trust, "username: geheim, password: geheim",
			"line 9: users[].user.username: basic authentication is not accepted; " + acceptedCredentials},
		"impersonation": {trust, "token: geheim, as: geheim",
			"line 9: users[].user.as: impersonation is not accepted; " + acceptedCredentials},
		"an impersonated group": {trust, "token: geheim, as-groups: [geheim]",
			"line 9: users[].user.as-groups: impersonation is not accepted; " + acceptedCredentials},
		"no verification": {where + "insecure-skip-tls-verify: true", "token: geheim",
			"line 6: clusters[].cluster.insecure-skip-tls-verify: a server that is not verified is not accepted; " +
				acceptedTrust},
		"no verification, in words": {where + "insecure-skip-tls-verify: yes", "token: geheim",
			"line 6: clusters[].cluster.insecure-skip-tls-verify: a server that is not verified is not accepted; " +
				acceptedTrust},
		"no CAs": {"server: 'https://x'", "token: geheim",
			"line 6: clusters[].cluster.certificate-authority: missing: the server must be verified against stated CAs"},
		"http": {"server: 'http://geheim'", "token: geheim",
			"line 6: clusters[].cluster.server: accepted is https://host[:port][/path]"},
		"a password in the URL": {"server: 'https://u:geheim@x'", "token: geheim",
			"line 6: clusters[].cluster.server: accepted is https://host[:port][/path]"},
		"no server": {"certificate-authority-data: " + data(ca), "token: geheim",
			"line 6: clusters[].cluster.server: accepted is https://host[:port][/path]"},
		"a missing file": {trust, "tokenFile: /nowhere/token",
			"line 9: users[].user.tokenFile: /nowhere/token: no such file or directory"},
		"no credentials": {trust, "", "line 9: users[].user: no credentials; " + acceptedCredentials},
		"a key alone": {trust, "client-key-data: " + data(key),
			"line 9: users[].user.client-certificate: certificate and key must come together; " + acceptedCredentials},
		"two tokens": {trust, "token: geheim, tokenFile: " + leaf,
			"line 9: users[].user.tokenFile: token is given as well: give one"},
		"data that is none": {trust, "client-key-data: geheim!", "line 9: users[].user.client-key-data: not base64"},
		"a certificate that is none": {trust, "client-certificate-data: " + data([]byte("geheim")) + ", client-key-data: " +
			data(key),
			"its certificates or key cannot be used: tls: failed to find any PEM data in certificate input"},
		"CAs that are none": {where + "certificate-authority-data: " + data([]byte("geheim")), "token: geheim",
			"line 6: clusters[].cluster.certificate-authority: holds no CA"},
		"a CA that is a leaf": {where + "certificate-authority-data: " + data(cert), "token: geheim",
			"line 6: clusters[].cluster.certificate-authority: holds no CA"},
		"a leaf in the file of a CA": {where + "certificate-authority: " + leaf, "token: geheim",
			"line 6: clusters[].cluster.certificate-authority: holds no CA"},
		"a CA without end": {where + "certificate-authority: /dev/zero", "token: geheim",
			"line 6: clusters[].cluster.certificate-authority: /dev/zero: not a regular file"},
		"a misplaced secret": {trust, "geheim: x", "line 9: users[].user: an unknown field"},
		"a field twice":      {trust, "token: geheim, token: geheim", "line 9: users[].user.token: given twice"},
		"an alias": {trust + ", tls-server-name: &a geheim", "token: *a",
			"line 9: users[].user.token: aliases are not accepted"},
		"a list as a token": {trust, "token: [geheim]", "line 9: users[].user.token: not a string"},
		"a strange proxy": {trust + ", proxy-url: 'ftp://geheim'", "token: geheim",
			"line 6: clusters[].cluster.proxy-url: accepted is http://, https:// or socks5:// with a host"},
		"text that is no YAML": {trust, "token: 'geheim", "not YAML, line 9"},
	} {
		t.Run(sentence, func(t *testing.T) {
			path := kubeconfig(t, c.cluster, c.user)
			_, err := FromKubeconfig(path)
			if err == nil {
				t.Fatal("accepted")
			}
			if got, want := err.Error(), "kubeconfig "+path+": "+c.want; got != want {
				t.Errorf("error %q\n want %q", got, want)
			}
			for _, secret := range []string{"geheim", data(key), data(cert)} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("the error holds content of the file: %v", err)
				}
			}
		})
	}
}

func TestFilesThatAreNoKubeconfig(t *testing.T) {
	for content, want := range map[string]string{
		"":                                      "empty",
		"geheim":                                "line 1: not a mapping",
		"clusters: geheim":                      "line 1: clusters: not a list",
		"clusters: [geheim]":                    "line 1: clusters[]: not a mapping",
		"clusters: []\ncurrent-context: geheim": "line 2: current-context: names nothing in this file",
		"clusters: []":                          "line 1: current-context: names nothing in this file",
		strings.Repeat("#", maxFile+1):          "larger than 1048576 bytes",
	} {
		path := filepath.Join(t.TempDir(), "k")
		save(t, path, []byte(content))
		if _, err := FromKubeconfig(path); err == nil || err.Error() != "kubeconfig "+path+": "+want {
			t.Errorf("%.40q: error %v, want %s", content, err, want)
		}
	}
	if _, err := FromKubeconfig("/nowhere"); err == nil ||
		err.Error() != "kubeconfig /nowhere: no such file or directory" {
		t.Errorf("error %v", err)
	}
}
