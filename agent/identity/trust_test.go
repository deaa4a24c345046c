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
	"github.com/node-cert-agent/node-cert-agent/tests/testpki"
)

// next is another CA for the server.
func (w *world) next() *testpki.Authority {
	return testpki.NewFrom(x509.Certificate{Subject: pkix.Name{CommonName: "next"}, NotAfter: w.ca.Cert.NotAfter},
		testpki.ECDSA)
}

// reissued has the server present a certificate of that CA, on new connections.
func (w *world) reissued(by *testpki.Authority) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.serving = serving(by).TLS()
}

func TestThePublishedTrustVerifiesAServerWhoseCAChanged(t *testing.T) {
	w := newWorld(t)
	w.files = []bootstrap.Credential{w.file("10-token", "good")}
	k := w.keeper()
	w.until(k, Active, time.Minute)
	next := w.next()
	both := slices.Concat(w.ca.PEM(), next.PEM())
	k.setTrust(t.Context(), both)
	w.reissued(next)
	k.transport.Conn().Close() // the next connection is a new one
	if got := w.whoGoesThrough(k); got != us {
		t.Errorf("after the roll the server knows us as %q", got)
	}
	if why, err := k.Prove(t.Context(), next.PEM()); why != "" || err != nil {
		t.Errorf("the server is not verified with its own CA: %s, %v", why, err)
	}
	if why, err := k.Prove(t.Context(), w.ca.PEM()); err != nil || !strings.Contains(why, "unknown authority") {
		t.Errorf("with the former CA alone: %s, %v", why, err)
	}

	k = w.keeper() // the identity's own CA is the former one
	k.Trust(both)
	k.setTrust(t.Context(), <-k.trusts)
	w.until(k, Active, time.Minute)
	if got := w.whoGoesThrough(k); got != us {
		t.Errorf("after a restart the server knows us as %q", got)
	}
}

func TestTrustThatDoesNotVerifyTheServerIsNotGoneOverTo(t *testing.T) {
	w := newWorld(t)
	w.files = []bootstrap.Credential{w.file("10-token", "good")}
	k := w.keeper()
	w.until(k, Active, time.Minute)
	next := w.next()
	k.setTrust(t.Context(), slices.Concat(w.ca.PEM(), next.PEM()))
	w.reissued(next)
	before := k.transport.Conn()
	k.setTrust(t.Context(), testpki.NewCA("a stranger"))
	if k.transport.Conn() != before || w.whoGoesThrough(k) != us {
		t.Error("the way to the server was given up")
	}
	wantOne(t, "records of it", w.records(audit.Error), 1)
}

func TestWhatOneClusterPublishesSaysNothingOfAnother(t *testing.T) {
	w := newWorld(t)
	w.files = []bootstrap.Credential{w.file("10-token", "good")}
	k := w.keeper()
	w.until(k, Active, time.Minute)
	k.trust.used = []byte("published")
	if got := w.keeper().trusting(w.server.URL); got != nil {
		t.Errorf("before there was an identity a server is verified with %q", got)
	}
	if got := k.trusting("https://elsewhere.example:6443"); got != nil {
		t.Errorf("another server is verified with %q", got)
	}
	if got := k.trusting(w.server.URL); string(got) != "published" {
		t.Errorf("our server is verified with %q", got)
	}
}

func TestWithoutAnIdentityNothingIsProven(t *testing.T) {
	if _, err := newWorld(t).keeper().Prove(t.Context(), testpki.NewCA("a")); err == nil ||
		err.Error() != "this node has no identity yet" {
		t.Errorf("got %v", err)
	}
}

// Of three API servers the one that answers rotates last: what is published does not verify it yet.
func TestTrustThatDoesNotVerifyTheServerYetIsTriedAgain(t *testing.T) {
	w := newWorld(t)
	w.files = []bootstrap.Credential{w.file("10-token", "good")}
	k := w.keeper()
	w.until(k, Active, time.Minute)
	w.pass(k, time.Minute)
	next, last := w.next(), w.next()
	both := slices.Concat(w.ca.PEM(), next.PEM())
	k.setTrust(t.Context(), both)
	w.reissued(next)
	k.setTrust(t.Context(), last.PEM())
	wantOne(t, "records of it", w.records(audit.Error), 1)
	w.pass(k, 30*time.Minute)
	if got := w.whoGoesThrough(k); got != us {
		t.Errorf("before its rotation the server knows us as %q", got)
	}
	w.reissued(last)
	k.transport.Conn().Close()
	if res, err := k.HTTPClient().Get(k.Server().String()); err == nil {
		_ = res.Body.Close()
		t.Error("the server was believed")
	}
	wantOne(t, "notices", len(k.rejected), 1) // and so it does not take until the next probe
	k.health.probeAt = w.now
	w.until(k, Active, time.Second)
	if got := w.whoGoesThrough(k); got != us {
		t.Errorf("after its rotation the server knows us as %q", got)
	}
	wantOne(t, "records of it", w.records(audit.Error), 1)
	k.setTrust(t.Context(), last.PEM())
	k.setTrust(t.Context(), testpki.NewCA("a stranger"))
	w.reissued(w.ca)
	k.transport.Conn().Close()
	k.health.probeAt = w.now
	w.until(k, Active, time.Second)
	if got := w.whoGoesThrough(k); got != us {
		t.Errorf("with its first CA again the server knows us as %q", got)
	}
	wantOne(t, "records of it", w.records(audit.Error), 2)
}
