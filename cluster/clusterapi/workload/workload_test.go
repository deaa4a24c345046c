// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

var (
	authority = testpki.New("workload", testpki.ECDSA)
	client    = authority.Client("kubernetes-admin", "system:masters")
)

func b64(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

// usual is a kubeconfig as Cluster API writes it.
func usual(server string) string {
	return fmt.Sprintf(`apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: %s
    server: %s
  name: c1
contexts:
- context:
    cluster: c1
    user: c1-admin
  name: c1-admin@c1
current-context: c1-admin@c1
kind: Config
preferences: {}
users:
- name: c1-admin
  user:
    client-certificate-data: %s
    client-key-data: %s
`, b64(authority.PEM()), server, b64(client.Cert), b64(client.Key))
}

// serves is a workload cluster whose API server verifies clients.
func serves(t *testing.T, answer http.HandlerFunc) (server string) {
	t.Helper()
	s := httptest.NewUnstartedServer(answer)
	clients := x509.NewCertPool()
	clients.AddCert(authority.Cert)
	s.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients, MinVersion: tls.VersionTLS13,
		Certificates: []tls.Certificate{authority.Issue(x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}).TLS()}}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL
}

func TestAStateIsReadByTheNameOfItsNode(t *testing.T) {
	server := serves(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/base/apis/node-cert-agent.io/v1alpha1/nodecertificatestates/n1":
			fmt.Fprint(w, `{"metadata":{"name":"n1"},"status":{"renewal":{"unrenewedNotAfter":"2027-03-01T00:00:00Z"}}}`)
		case "/base/apis/node-cert-agent.io/v1alpha1/nodecertificatestates/other":
			fmt.Fprint(w, `{"metadata":{"name":"n1"}}`)
		case "/base/apis/node-cert-agent.io/v1alpha1/nodecertificatestates/long":
			fmt.Fprint(w, `{"metadata":{"name":"long"},"x":"`, strings.Repeat("x", maxAnswer), `"}`)
		case "/base/apis/node-cert-agent.io/v1alpha1/nodecertificatestates/date":
			fmt.Fprint(w, `{"metadata":{"name":"date"},"status":{"heartbeat":"2026-11-23t08:00:00z"}}`)
		case "/base/apis/node-cert-agent.io/v1alpha1/nodecertificatestates/moved":
			http.Redirect(w, r, "/base/apis/node-cert-agent.io/v1alpha1/nodecertificatestates/n1", http.StatusFound)
		case "/base/apis/node-cert-agent.io/v1alpha1/nodecertificatestates/none":
			http.NotFound(w, r)
		default:
			http.Error(w, "no", http.StatusForbidden)
		}
	})
	c, err := Open([]byte(usual(server + "/base")))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := c.State(t.Context(), "n1")
	if err != nil || s == nil || s.Status.Renewal.UnrenewedNotAfter.UTC().Year() != 2027 {
		t.Errorf("n1: %+v, %v", s, err)
	}
	if s, err := c.State(t.Context(), "none"); s != nil || err != nil {
		t.Errorf("a node without a state: %+v, %v", s, err)
	}
	for node, unreadable := range map[string]bool{"other": true, "long": true, "date": true, "moved": false,
		"refused": false, "a/../n1": false} {
		if s, err := c.State(t.Context(), node); s != nil || err == nil || errors.Is(err, ErrUnreadable) != unreadable {
			t.Errorf("%s: %+v, %v", node, s, err)
		}
	}
}

func TestAClusterWithAnotherCAGetsNoAnswerTaken(t *testing.T) {
	asked := false
	server := serves(t, func(http.ResponseWriter, *http.Request) { asked = true })
	text := strings.Replace(usual(server), b64(authority.PEM()), b64(testpki.NewCA("another")), 1)
	c, err := Open([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if s, err := c.State(t.Context(), "n1"); s != nil || err == nil || asked {
		t.Errorf("%+v, %v, asked: %v", s, err, asked)
	}
}

func TestRefusedKubeconfigs(t *testing.T) {
	good := usual("https://127.0.0.1:6443")
	if c, err := Open([]byte(good)); err != nil {
		t.Fatal(err)
	} else {
		c.Close()
	}
	for sentence, change := range map[string]struct{ old, now string }{
		"a program":               {"  user:\n", "  user:\n    exec: {command: /bin/true, apiVersion: client.authentication.k8s.io/v1}\n"},
		"a program of another":    {"users:\n", "users:\n- {name: x, user: {exec: {command: /bin/true}}}\n"},
		"a plug-in":               {"  user:\n", "  user:\n    auth-provider: {name: gcp}\n"},
		"a token":                 {"  user:\n", "  user:\n    token: secret-word\n"},
		"a token's file":          {"  user:\n", "  user:\n    tokenFile: /etc/passwd\n"},
		"a password":              {"  user:\n", "  user:\n    username: a\n    password: secret-word\n"},
		"another user":            {"  user:\n", "  user:\n    as: admin\n"},
		"a key's file":            {"client-key-data:", "client-key: /etc/passwd\n    client-key-data:"},
		"a certificate's file":    {"client-certificate-data:", "client-certificate: /etc/passwd\n    client-certificate-data:"},
		"a CA's file":             {"    server:", "    certificate-authority: /etc/passwd\n    server:"},
		"a proxy":                 {"    server:", "    proxy-url: http://127.0.0.1:1\n    server:"},
		"no verification":         {"    server:", "    insecure-skip-tls-verify: true\n    server:"},
		"no TLS":                  {"https:", "http:"},
		"no CA":                   {b64(authority.PEM()), ""},
		"a leaf for a CA":         {b64(authority.PEM()), b64(client.Cert)},
		"no key":                  {b64(client.Key), ""},
		"a key that is none":      {b64(client.Key), b64([]byte("secret-word"))},
		"no context":              {"current-context: c1-admin@c1", "current-context: other"},
		"no such cluster":         {"    cluster: c1", "    cluster: c2"},
		"two users of one name":   {"users:\n", "users:\n- {name: c1-admin, user: {}}\n"},
		"a key of YAML twice":     {"kind: Config", "kind: Config\nkind: Config"},
		"no YAML":                 {"apiVersion: v1", "\t{secret-word"},
		"more than anybody needs": {"apiVersion: v1", "apiVersion: v1" + strings.Repeat(" ", maxKubeconfig)},
	} {
		text := strings.Replace(good, change.old, change.now, 1)
		if text == good {
			t.Fatalf("%s changes nothing", sentence)
		}
		c, err := Open([]byte(text))
		if err == nil {
			c.Close()
			t.Errorf("%s is accepted", sentence)
		} else if strings.Contains(err.Error(), "secret-word") || strings.Contains(err.Error(), "passwd") {
			t.Errorf("%s: the error quotes it: %v", sentence, err)
		}
	}
}
