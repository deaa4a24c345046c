// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/agent/source"
	"github.com/node-cert-agent/node-cert-agent/cmd/process"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/kubeconfigs"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// issuer is as much of an API server as bootstrap needs: it knows one token and the certificates that it
// has issued, and issues them as soon as somebody approves.
type issuer struct {
	*httptest.Server
	ca       *testpki.Authority
	mu       sync.Mutex
	approves bool
	requests map[string]map[string]any // specs, by name
	asked    map[string]string         // who asked last, by method and path
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{ca: testpki.New("cluster", testpki.ECDSA), requests: map[string]map[string]any{},
		asked: map[string]string{}}
	i.Server = httptest.NewUnstartedServer(i)
	serving := i.ca.Issue(x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	i.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, Certificates: []tls.Certificate{serving.TLS()}}
	i.StartTLS()
	t.Cleanup(i.Close)
	return i
}

func (i *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	who := ""
	if certs := r.TLS.PeerCertificates; len(certs) > 0 && certs[0].CheckSignatureFrom(i.ca.Cert) == nil {
		who = certs[0].Subject.CommonName
	} else if r.Header.Get("Authorization") == "Bearer "+marker {
		who = "system:bootstrap:token1"
	}
	i.asked[r.Method+" "+r.URL.Path] = who
	status, body := http.StatusCreated, map[string]any{}
	switch name := path.Base(r.URL.Path); {
	case who == "":
		status = http.StatusUnauthorized
	case name == "selfsubjectreviews":
		body["status"] = map[string]any{"userInfo": map[string]any{"username": who}}
	case name == "selfsubjectaccessreviews":
		body["status"] = map[string]any{"allowed": true}
	case r.Method == http.MethodPost:
		var o struct {
			Metadata struct{ Name string }
			Spec     map[string]any
		}
		_ = json.NewDecoder(r.Body).Decode(&o)
		if i.requests[o.Metadata.Name] != nil {
			status = http.StatusConflict
		}
		i.requests[o.Metadata.Name] = o.Spec
	case i.requests[name] == nil:
		status = http.StatusNotFound
	default:
		status = http.StatusOK
		body["metadata"], body["spec"], body["status"] = map[string]any{"name": name}, i.requests[name], i.answer(name)
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

// answer is the status of a request.
func (i *issuer) answer(name string) map[string]any {
	if !i.approves {
		return map[string]any{}
	}
	text, _ := base64.StdEncoding.DecodeString(i.requests[name]["request"].(string))
	block, _ := pem.Decode(text)
	asked, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		panic(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(int64(len(i.requests))),
		Subject:   asked.Subject,
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, i.ca.Cert, asked.PublicKey, i.ca.Key)
	if err != nil {
		panic(err)
	}
	return map[string]any{"conditions": []any{map[string]any{"type": "Approved", "status": "True"}},
		"certificate": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// approve has everything approved from now on, and says how many requests there were until now.
func (i *issuer) approve() (requests int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.approves = true
	return len(i.requests)
}

// joining is a tree with a token for an API server that has not approved anything yet.
func joining(t *testing.T) (*tree, *issuer) {
	t.Helper()
	r, i := newTree(t), newIssuer(t)
	r.configure("node: {name: worker-1}\n")
	if err := os.Mkdir(r.path(bootstrapDir), 0o700); err != nil {
		t.Fatal(err)
	}
	save(t, r.path(bootstrapDir+"/token.kubeconfig"), string(kubeconfigs.Token(i.URL, i.ca.PEM(), marker)))
	return r, i
}

// upTo runs a command and interrupts it as soon as it has printed the words.
func (r *tree) upTo(words string, args ...string) outcome {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), testTimeout)
	defer cancel()
	stdout, stderr := &listener{words: words, heard: cancel}, &console{}
	return outcome{run(ctx, append(args, "--root", r.root), stdout, stderr), stdout.String(), stderr.String()}
}

// listener is a console that calls heard when it has been told the words.
type listener struct {
	console
	words string
	heard func()
}

func (l *listener) Write(b []byte) (int, error) {
	n, err := l.console.Write(b)
	if strings.Contains(l.String(), l.words) {
		l.heard()
	}
	return n, err
}

const identityPEM = "/var/lib/node-cert-agent/identity.pem"

func TestBootstrapGetsAnIdentityAndResetSetsItAside(t *testing.T) {
	r, i := joining(t)
	o := r.upTo("waiting for approval, as", "bootstrap")
	if o.code != exitNoID || !strings.Contains(o.stderr,
		"no identity in time: pending: waiting for approval, as node-cert-agent-") || r.file(identityPEM) != "" {
		t.Fatalf("without an approval: exits with %d, prints %q and %q", o.code, o.stdout, o.stderr)
	}
	if n := i.approve(); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
	o = r.command("bootstrap")
	if o.code != 0 || !strings.HasSuffix(o.stdout, "active\n") {
		t.Fatalf("exits with %d, prints %q and %q", o.code, o.stdout, o.stderr)
	}
	if n := i.approve(); n != 1 {
		t.Errorf("%d requests, want the one that was there", n)
	}
	if _, err := os.Stat(r.path(bootstrapDir + "/token.kubeconfig")); err == nil {
		t.Error("the bootstrap file is still there")
	}
	if o = r.command("bootstrap"); o.code != 0 || o.stdout != "active\n" {
		t.Errorf("with an identity: exits with %d, prints %q and %q", o.code, o.stdout, o.stderr)
	}

	before := r.file(identityPEM)
	o = r.command("reset")
	if o.code != 0 || o.stdout != "set aside as "+identityPEM+".reset\n" || r.file(identityPEM) != "" ||
		r.file(identityPEM+".reset") != before {
		t.Errorf("reset exits with %d, prints %q and %q", o.code, o.stdout, o.stderr)
	}
	if o = r.command("reset"); o.code != 0 || o.stdout != "there was no identity\n" ||
		r.file(identityPEM+".reset") != before {
		t.Errorf("a second reset exits with %d, prints %q and %q", o.code, o.stdout, o.stderr)
	}
	if o = r.upTo("no bootstrap file", "bootstrap"); o.code != exitNoID {
		t.Errorf("without a file: exits with %d, prints %q and %q", o.code, o.stdout, o.stderr)
	}
	r.wantNoSecret("")
}

func TestTheServiceWatchesAndReportsAsTheIdentityThatItGot(t *testing.T) {
	r, i := joining(t)
	if err := os.Remove(r.kubeconfig); err != nil {
		t.Fatal(err)
	}
	r.kubeconfig = ""
	r.start()
	r.awaitStatus("a request", func(s report.Status) bool {
		return s.State == source.NoIdentity && strings.HasPrefix(s.Reason,
			"pending: waiting for approval, as node-cert-agent-")
	})
	i.approve()
	r.awaitStatus("an identity", func(s report.Status) bool {
		return s.State != source.NoIdentity && s.Identity != nil && s.Identity.State == "active"
	})
	// The state object begins with the question whether a write for another node is refused; here the kind is missing.
	for _, want := range []string{"GET /apis/node-cert-agent.io/v1alpha1/controllerconfigs",
		"POST /apis/node-cert-agent.io/v1alpha1/nodecertificatestates"} {
		r.await(want, func() bool {
			i.mu.Lock()
			defer i.mu.Unlock()
			return i.asked[want] == "node-cert-agent:node:worker-1"
		})
	}
}

func TestBootstrapSaysWhatIsWrongWithAFile(t *testing.T) {
	r, i := joining(t)
	if err := os.Chmod(r.path(bootstrapDir+"/token.kubeconfig"), 0o644); err != nil {
		t.Fatal(err)
	}
	o := r.upTo("token.kubeconfig: has mode 0644, want nothing for group and others", "bootstrap")
	if o.code != exitNoID || i.approve() != 0 {
		t.Errorf("exits with %d, prints %q and %q", o.code, o.stdout, o.stderr)
	}
}

func TestResetWithoutAStateDirectoryHasNothingToDo(t *testing.T) {
	r := newTree(t)
	before := r.snapshot()
	o := r.command("reset")
	if o.code != process.Failed || !strings.Contains(o.stderr, "hint: ") || r.snapshot() != before {
		t.Errorf("exits with %d, prints %q and %q", o.code, o.stdout, o.stderr)
	}
}
