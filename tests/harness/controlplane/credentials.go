// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// The groups and users that Kubernetes itself gives a meaning.
const (
	adminGroup            = "system:masters"
	controllerManagerUser = "system:kube-controller-manager"
)

// writePKI makes the pairs of the servers. etcd trusts an authority of its own: whoever it lets in
// is past all authorisation.
func (p *Plane) writePKI(etcdCA *testpki.Authority) error {
	if err := os.MkdirAll(p.file("pki"), 0o700); err != nil {
		return err
	}
	both := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	pairs := map[string]testpki.Pair{
		"apiserver":          p.ca.Issue(serving("kube-apiserver", both[:1])),
		"controller-manager": p.ca.Issue(serving("kube-controller-manager", both[:1])),
		"etcd":               etcdCA.Issue(serving("etcd", both)),
		"etcd-client":        etcdCA.Client("kube-apiserver"),
		"ca":                 {Cert: p.ca.PEM(), Key: p.ca.KeyPEM()},
		"etcd-ca":            {Cert: etcdCA.PEM()},
		"service-account":    p.ca.Client("service-account"), // only its keys count
	}
	for name, pair := range pairs {
		for ending, b := range map[string][]byte{".crt": pair.Cert, ".key": pair.Key} {
			if err := os.WriteFile(p.file("pki/"+name+ending), b, 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}

// serving is the template of a server certificate for every name the plane is reached by: loopback,
// also from within a container, and what clients inside a cluster would say.
func serving(cn string, usages []x509.ExtKeyUsage) x509.Certificate {
	return x509.Certificate{
		Subject:     pkix.Name{CommonName: cn},
		ExtKeyUsage: usages,
		DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback, net.IPv4(10, 0, 0, 1)},
	}
}

// CA is the authority that signs the API server's certificate and every client's; with it a test
// makes identities of its own.
func (p *Plane) CA() *testpki.Authority { return p.ca }

// Client speaks HTTP/2 to the API server with a new client certificate for the user and groups.
func (p *Plane) Client(user string, groups ...string) *http.Client {
	return newClient(p.ca, p.ca.Client(user, groups...))
}

func newClient(ca *testpki.Authority, pair testpki.Pair) *http.Client {
	roots := x509.NewCertPool()
	roots.AddCert(ca.Cert)
	return &http.Client{Transport: &http.Transport{
		ForceAttemptHTTP2: true,
		TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair.TLS()},
			MinVersion: tls.VersionTLS12},
	}}
}

// Bearer is a client with a token and no certificate.
func (p *Plane) Bearer(token string) *http.Client {
	transport := p.admin.Transport.(*http.Transport).Clone()
	transport.TLSClientConfig.Certificates = nil
	return &http.Client{Transport: bearer{transport, token}}
}

type bearer struct {
	http.RoundTripper
	token string
}

// RoundTrip implements http.RoundTripper.
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.RoundTripper.RoundTrip(r)
}

// Token is a bootstrap token to be made.
type Token struct {
	// ID has six letters or digits, Secret sixteen.
	ID, Secret string
	// Groups are those of its holder beside Kubernetes' own, and Labels the Secret's, as in YAML; both are
	// separated by commas.
	Groups, Labels string
}

// MakeToken makes the token and returns it as it is sent.
func (p *Plane) MakeToken(ctx context.Context, t Token) (string, error) {
	return t.ID + "." + t.Secret, p.Apply(ctx, fmt.Appendf(nil, `apiVersion: v1
kind: Secret
metadata: {name: bootstrap-token-%[1]s, namespace: kube-system, labels: {%[4]s}}
type: bootstrap.kubernetes.io/token
stringData: {token-id: %[1]s, token-secret: %[2]s, usage-bootstrap-authentication: "true", auth-extra-groups: "%[3]s"}
`, t.ID, t.Secret, t.Groups, t.Labels))
}

// AdminClient is a Client that may do everything; all callers share it and its connection.
func (p *Plane) AdminClient() *http.Client { return p.admin }

// Kubeconfig writes a new kubeconfig (0600, below Dir) with an inline client certificate for the
// user and groups. The server is p.URL(), or where else the reader will find this API server: its
// certificate names 127.0.0.1, ::1 and localhost, with any port.
func (p *Plane) Kubeconfig(server, user string, groups ...string) (path string, err error) {
	f, err := os.CreateTemp(p.dir, "client-*.kubeconfig")
	if err != nil {
		return "", err
	}
	defer f.Close()
	if _, err := f.Write(p.kubeconfig(server, user, groups...)); err != nil {
		return "", err
	}
	return f.Name(), nil
}

func (p *Plane) writeKubeconfigs() error {
	for name, config := range map[string][]byte{
		"admin":              p.kubeconfig(p.URL(), "admin", adminGroup),
		"controller-manager": p.kubeconfig(p.URL(), controllerManagerUser),
	} {
		if err := os.WriteFile(p.file(name+".kubeconfig"), config, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (p *Plane) kubeconfig(server, user string, groups ...string) []byte {
	pair := p.ca.Client(user, groups...)
	b64 := base64.StdEncoding.EncodeToString
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters:
- name: plane
  cluster:
    server: %q
    certificate-authority-data: %s
users:
- name: %[3]q
  user:
    client-certificate-data: %s
    client-key-data: %s
contexts:
- name: plane
  context:
    cluster: plane
    user: %[3]q
current-context: plane
`, server, b64(p.ca.PEM()), user, b64(pair.Cert), b64(pair.Key))
}

func (p *Plane) file(name string) string { return filepath.Join(p.dir, name) }
