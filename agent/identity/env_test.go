// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/bootstrap"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/secret"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/kubeconfigs"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// env is everything around a manager: a small API server on loopback with an approver and a signer,
// the state directory, the bootstrap directory, the trail and the clock. It is the manager's Dir,
// Bootstrap, Recorder and Clock.
type env struct {
	t      *testing.T
	server *httptest.Server
	mu     sync.Mutex
	now    time.Time     // by the host's clock
	skew   time.Duration // of the API server's

	// The cluster. Requests of one cluster are gone when their entry is.
	ca       *testpki.Authority
	clients  []*testpki.Authority // that issued client certificates, too
	serving  tls.Certificate      // what the server presents
	info     []byte               // the CAs in cluster-info, for anybody; nil: there is none
	raw      []byte               // the answer for cluster-info itself
	tokened  int                  // requests with a token
	tokens   map[string]bool      // those that work
	rolled   bool                 // no client certificate is known any more
	forbids  bool                 // RBAC lets nobody renew
	revoked  string               // a serial number that is not
	requests map[string]*fakeRequest
	made     int // requests ever made
	calls    int // of any kind
	life     time.Duration
	approve  func(*fakeRequest)
	override func(what string) int // status; 0: answer as usual
	busy     string                // Retry-After of every answer

	// The host.
	dir      map[string][]byte
	files    []bootstrap.Credential
	consumed []string
	keep     bool
	polls    int
	broken   error // of the bootstrap directory
	stuck    error // of every consumption
	pins     []string
	trail    []audit.Record

	// contact is called before each contact with the outside. It may panic.
	contact func(what string)
}

// fakeRequest is a CertificateSigningRequest as the server keeps it.
type fakeRequest struct {
	Metadata metadata `json:"metadata"`
	Spec     request  `json:"spec"`
	Status   struct {
		Conditions  []condition `json:"conditions"`
		Certificate []byte      `json:"certificate"`
	} `json:"status"`
}

func newEnv(t *testing.T) *env {
	w := &env{t: t, now: time.Now().UTC().Truncate(time.Second), tokens: map[string]bool{"good": true},
		requests: map[string]*fakeRequest{}, life: 24 * time.Hour, dir: map[string][]byte{}, contact: func(string) {},
		override: func(string) int { return 0 }}
	w.ca = testpki.NewFrom(x509.Certificate{Subject: pkix.Name{CommonName: "cluster"}, NotAfter: w.now.AddDate(1, 0, 0)},
		testpki.ECDSA)
	w.approve = w.sign
	w.server = httptest.NewUnstartedServer(w)
	w.serving = serving(w.ca).TLS()
	w.server.EnableHTTP2, w.server.Config.ErrorLog = true, log.New(io.Discard, "", 0)
	w.server.TLS = &tls.Config{NextProtos: []string{"h2"}, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config,
		error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return &tls.Config{NextProtos: []string{"h2"}, ClientAuth: tls.RequestClientCert,
			Certificates: []tls.Certificate{w.serving}}, nil
	}}
	w.server.StartTLS()
	t.Cleanup(w.server.Close)
	return w
}

// serving is what a server of the authority presents.
func serving(a *testpki.Authority) testpki.Pair {
	return a.Issue(x509.Certificate{NotAfter: a.Cert.NotAfter, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
}

// file is a bootstrap file with a token.
func (w *env) file(name, token string) bootstrap.Credential {
	id := bootstrap.ID{Name: name, Digest: plan.DigestOf([]byte(name + " " + token))}
	return bootstrap.Credential{ID: id, Content: secret.New(kubeconfigs.Token(w.server.URL, w.ca.PEM(), token))}
}

// sign approves and issues what was asked for.
func (w *env) sign(r *fakeRequest) {
	block, _ := pem.Decode(r.Spec.Request)
	asked, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		w.t.Error(err)
		return
	}
	r.Status.Conditions = append(r.Status.Conditions, condition{Type: "Approved", Status: "True"})
	r.Status.Certificate = w.issue(asked.PublicKey, asked.Subject)
}

func (w *env) issue(key any, subject pkix.Name) []byte {
	serial, _ := rand.Int(rand.Reader, big.NewInt(1<<62))
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: serial, Subject: subject,
		NotBefore: w.now.Add(-5 * time.Minute),
		NotAfter:  w.now.Add(w.life), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, w.ca.Cert, key, w.ca.Key)
	if err != nil {
		w.t.Error(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// who is the user behind a request, "" if the server knows none.
func (w *env) who(r *http.Request) string {
	if certs := r.TLS.PeerCertificates; len(certs) > 0 {
		issued := func(a *testpki.Authority) bool { return certs[0].CheckSignatureFrom(a.Cert) == nil }
		if w.rolled || certs[0].SerialNumber.Text(16) == w.revoked || w.now.Add(-w.skew).After(certs[0].NotAfter) ||
			!issued(w.ca) && !slices.ContainsFunc(w.clients, issued) {
			return ""
		}
		return certs[0].Subject.CommonName
	}
	if token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "); w.tokens[token] {
		return "system:bootstrap:" + token
	}
	return ""
}

// ServeHTTP is the API server.
func (w *env) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	what := r.Method + " " + path.Base(r.URL.Path)
	if r.Method == http.MethodGet {
		what = "GET request"
	}
	who := w.who(r)
	w.calls++
	if r.Header.Get("Authorization") != "" {
		w.tokened++
	}
	status, body := w.override(what), any(nil)
	if w.busy != "" {
		rw.Header().Set("Retry-After", w.busy)
	}
	switch {
	case status != 0:
	case r.URL.Path == "/api/v1/namespaces/kube-public/configmaps/cluster-info" && w.raw != nil:
		_, _ = rw.Write(w.raw)
		return
	case r.URL.Path == "/api/v1/namespaces/kube-public/configmaps/cluster-info":
		status, body = w.clusterInfo(r)
	case who == "":
		status = http.StatusUnauthorized
	case what == "POST selfsubjectreviews":
		status, body = http.StatusCreated,
			map[string]any{"status": map[string]any{"userInfo": map[string]any{"username": who}}}
	case what == "POST selfsubjectaccessreviews":
		status, body = http.StatusCreated, map[string]any{"status": map[string]any{"allowed": !w.forbids}}
	case r.Method == http.MethodPost:
		status, body = w.create(r)
	default:
		status, body = http.StatusNotFound, nil
		if found := w.requests[path.Base(r.URL.Path)]; found != nil {
			if len(found.Status.Conditions) == 0 && w.approve != nil {
				w.approve(found)
			}
			status, body = http.StatusOK, found
		}
	}
	if body == nil {
		body = map[string]any{"kind": "Status", "message": "fake says " + http.StatusText(status)}
	}
	rw.WriteHeader(status)
	_ = json.NewEncoder(rw).Encode(body)
}

// clusterInfo is for everybody, and who asks for it must not say who he is: he does not know us yet.
func (w *env) clusterInfo(r *http.Request) (int, any) {
	if len(r.TLS.PeerCertificates) > 0 || r.Header.Get("Authorization") != "" {
		w.t.Error("a credential was sent to a server that was not verified")
	}
	if w.info == nil {
		return http.StatusForbidden, nil
	}
	return http.StatusOK, map[string]any{"data": map[string]any{"jws-kubeconfig-good": "x",
		"kubeconfig": "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: " +
			base64.StdEncoding.EncodeToString(w.info) + "\n    server: https://elsewhere:6443\n  name: ''\ncontexts: null\n"}}
}

func (w *env) create(r *http.Request) (int, any) {
	var made fakeRequest
	if err := json.NewDecoder(r.Body).Decode(&made); err != nil {
		return http.StatusBadRequest, nil
	}
	if w.requests[made.Metadata.Name] != nil {
		return http.StatusConflict, nil
	}
	w.made++
	made.Metadata.UID = fmt.Sprint(w.made)
	w.requests[made.Metadata.Name] = &made
	return http.StatusCreated, made
}

func (w *env) ReadFile(name string) ([]byte, error) {
	w.contact("read " + name)
	b, ok := w.dir[name]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return b, nil
}

func (w *env) WriteFile(name string, data []byte) error {
	w.contact("before write " + name)
	w.dir[name] = append([]byte(nil), data...)
	w.contact("after write " + name)
	return nil
}

func (w *env) Rename(from, to string) error {
	w.contact("rename " + from)
	if _, ok := w.dir[from]; !ok {
		return &fs.PathError{Op: "rename", Path: from, Err: fs.ErrNotExist}
	}
	w.dir[to] = w.dir[from]
	delete(w.dir, from)
	return nil
}

func (w *env) Remove(name string) error {
	w.contact("before remove " + name)
	delete(w.dir, name)
	w.contact("after remove " + name)
	return nil
}

func (w *env) Bootstrap(context.Context) ([]bootstrap.Credential, error) {
	w.contact("bootstrap")
	w.polls++
	return w.files, w.broken
}

func (w *env) Consume(_ context.Context, digest plan.Digest) (string, error) {
	w.contact("before consume")
	if w.keep || w.stuck != nil {
		return "", w.stuck
	}
	for i, f := range w.files {
		if f.Digest == digest {
			w.files = append(w.files[:i:i], w.files[i+1:]...)
			w.consumed = append(w.consumed, f.Name)
			w.contact("after consume")
			return "deleted", nil
		}
	}
	return "", nil
}

func (w *env) Record(r audit.Record) {
	w.contact("record " + r.Kind.Name)
	w.trail = append(w.trail, r)
}

func (w *env) Now() time.Time { return w.now }

// After implements Clock for what the tests never wait for.
func (w *env) After(time.Duration) <-chan time.Time { return nil }

func save(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func data(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

// records counts the records of a kind.
func (w *env) records(k audit.Kind) (n int) {
	for _, r := range w.trail {
		if r.Kind == k {
			n++
		}
	}
	return n
}

// manager is a new one, as after a start of the process.
func (w *env) manager() *Manager {
	return New(Options{Node: "worker-1", Lifetime: time.Hour, Dir: w, Bootstrap: w, Pins: w.pins, FollowHint: true,
		Trail: w, Clock: w, Rand: func() float64 { return 0 }})
}

// tick is one of the manager's, which leads where the table says.
func (w *env) tick(m *Manager) time.Duration {
	w.t.Helper()
	from := m.state
	wait := m.tick(w.t.Context())
	if !slices.Contains(machine[from].next, m.state) {
		w.t.Errorf("from %s the machine went to %s", from, m.state)
	}
	return wait
}

// until lets time pass as the manager asks for it, until it is in the state; it gives up after a while
// of the env's time.
func (w *env) until(m *Manager, s State, most time.Duration) {
	w.t.Helper()
	for end := w.now.Add(most); ; {
		wait := w.tick(m)
		got := <-m.readings
		if got.State == s {
			return
		}
		if w.now.Add(wait).After(end) {
			w.t.Fatalf("after %v the state is %s: %s; want %s", most, got.State, got.Reason, s)
		}
		w.mu.Lock()
		w.now = w.now.Add(wait)
		w.mu.Unlock()
	}
}

// advance lets time go by, with the manager doing what it does.
func (w *env) advance(m *Manager, d time.Duration) (last Status) {
	w.t.Helper()
	for end := w.now.Add(d); w.now.Before(end); {
		wait := w.tick(m)
		last = <-m.readings
		w.mu.Lock()
		w.now = w.now.Add(max(wait, time.Millisecond))
		w.mu.Unlock()
	}
	return last
}

// names of the user behind the door, or the error.
func (w *env) currentUser(m *Manager) string {
	c := m.transport.Conn()
	if c == nil {
		return ""
	}
	a := m.api.whoami(w.t.Context(), c)
	return a.user + a.reason
}
