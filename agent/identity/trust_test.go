// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/bootstrap"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// next is another CA for the server.
func (w *env) next() *testpki.Authority {
	return testpki.NewFrom(x509.Certificate{Subject: pkix.Name{CommonName: "next"}, NotAfter: w.ca.Cert.NotAfter},
		testpki.ECDSA)
}

// reissued has the server present a certificate of that CA, on new connections.
func (w *env) reissued(by *testpki.Authority) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.serving = serving(by).TLS()
}

func TestThePublishedTrustVerifiesAServerWhoseCAChanged(t *testing.T) {
	w := newEnv(t)
	w.files = []bootstrap.Credential{w.file("10-token", "good")}
	m := w.manager()
	w.until(m, Active, time.Minute)
	next := w.next()
	both := slices.Concat(w.ca.PEM(), next.PEM())
	m.setTrust(t.Context(), both)
	w.reissued(next)
	m.transport.Conn().Close() // the next connection is a new one
	if got := w.currentUser(m); got != us {
		t.Errorf("after the roll the server knows us as %q", got)
	}
	if why, err := m.Prove(t.Context(), next.PEM()); why != "" || err != nil {
		t.Errorf("the server is not verified with its own CA: %s, %v", why, err)
	}
	if why, err := m.Prove(t.Context(), w.ca.PEM()); err != nil || !strings.Contains(why, "unknown authority") {
		t.Errorf("with the former CA alone: %s, %v", why, err)
	}

	m = w.manager() // the identity's own CA is the former one
	m.Trust(both)
	m.setTrust(t.Context(), <-m.trusts)
	w.until(m, Active, time.Minute)
	if got := w.currentUser(m); got != us {
		t.Errorf("after a restart the server knows us as %q", got)
	}
}

func TestTrustThatDoesNotVerifyTheServerIsNotGoneOverTo(t *testing.T) {
	w := newEnv(t)
	w.files = []bootstrap.Credential{w.file("10-token", "good")}
	m := w.manager()
	w.until(m, Active, time.Minute)
	next := w.next()
	m.setTrust(t.Context(), slices.Concat(w.ca.PEM(), next.PEM()))
	w.reissued(next)
	before := m.transport.Conn()
	m.setTrust(t.Context(), testpki.NewCA("a stranger"))
	if m.transport.Conn() != before || w.currentUser(m) != us {
		t.Error("the way to the server was given up")
	}
	wantOne(t, "records of it", w.records(audit.Error), 1)
}

func TestWhatOneClusterPublishesSaysNothingOfAnother(t *testing.T) {
	w := newEnv(t)
	w.files = []bootstrap.Credential{w.file("10-token", "good")}
	m := w.manager()
	w.until(m, Active, time.Minute)
	m.trust.used = []byte("published")
	if got := w.manager().trustFor(w.server.URL); got != nil {
		t.Errorf("before there was an identity a server is verified with %q", got)
	}
	if got := m.trustFor("https://elsewhere.example:6443"); got != nil {
		t.Errorf("another server is verified with %q", got)
	}
	if got := m.trustFor(w.server.URL); string(got) != "published" {
		t.Errorf("our server is verified with %q", got)
	}
}

func TestWithoutAnIdentityNothingIsProven(t *testing.T) {
	if _, err := newEnv(t).manager().Prove(t.Context(), testpki.NewCA("a")); err == nil ||
		err.Error() != "this node has no identity yet" {
		t.Errorf("got %v", err)
	}
}

// Of three API servers the one that answers rotates last: what is published does not verify it yet.
func TestTrustThatDoesNotVerifyTheServerYetIsTriedAgain(t *testing.T) {
	w := newEnv(t)
	w.files = []bootstrap.Credential{w.file("10-token", "good")}
	m := w.manager()
	w.until(m, Active, time.Minute)
	w.advance(m, time.Minute)
	next, last := w.next(), w.next()
	both := slices.Concat(w.ca.PEM(), next.PEM())
	m.setTrust(t.Context(), both)
	w.reissued(next)
	m.setTrust(t.Context(), last.PEM())
	wantOne(t, "records of it", w.records(audit.Error), 1)
	w.advance(m, 30*time.Minute)
	if got := w.currentUser(m); got != us {
		t.Errorf("before its rotation the server knows us as %q", got)
	}
	w.reissued(last)
	m.transport.Conn().Close()
	if res, err := m.HTTPClient().Get(m.Server().String()); err == nil {
		_ = res.Body.Close()
		t.Error("the server was believed")
	}
	wantOne(t, "notices", len(m.rejected), 1) // and so it does not take until the next probe
	m.health.probeAt = w.now
	w.until(m, Active, time.Second)
	if got := w.currentUser(m); got != us {
		t.Errorf("after its rotation the server knows us as %q", got)
	}
	wantOne(t, "records of it", w.records(audit.Error), 1)
	m.setTrust(t.Context(), last.PEM())
	m.setTrust(t.Context(), testpki.NewCA("a stranger"))
	w.reissued(w.ca)
	m.transport.Conn().Close()
	m.health.probeAt = w.now
	w.until(m, Active, time.Second)
	if got := w.currentUser(m); got != us {
		t.Errorf("with its first CA again the server knows us as %q", got)
	}
	wantOne(t, "records of it", w.records(audit.Error), 2)
}
