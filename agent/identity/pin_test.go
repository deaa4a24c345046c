// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/bootstrap"
	"github.com/node-cert-agent/node-cert-agent/agent/secret"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// What is said where no pin leads to a CA.
const (
	noPin   = "neither cluster-info nor the chain that the server presents holds a CA with a pinned key"
	leafPin = "a pin fits a certificate that is no CA; pin the CA that signs it"
)

func pinOf(c *x509.Certificate) string {
	sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// bare is a bootstrap file that states no CA.
func (w *env) bare(name, token string) bootstrap.Credential {
	f := w.file(name, token)
	text := string(f.Content.Reveal())
	from := strings.Index(text, ", certificate-authority-data")
	f.Content = secret.New([]byte(text[:from] + text[from+strings.Index(text[from:], "}"):]))
	return f
}

// presents adds a CA to the chain in the handshake.
func (w *env) presents(c *x509.Certificate) {
	w.serving.Certificate = append(w.serving.Certificate, c.Raw)
}

func TestWithAPinAFileNeedsNoCA(t *testing.T) {
	foreign := testpki.NewCA("foreign")
	for sentence, prepare := range map[string]func(*env){
		"which is in cluster-info": func(w *env) { w.info = w.ca.PEM() },
		"which stands in cluster-info beside a stranger": func(w *env) {
			w.info = slices.Concat(foreign, w.ca.PEM(), foreign)
		},
		"which the server presents": func(w *env) { w.presents(w.ca.Cert) },
		"which the server presents, with a stranger in cluster-info": func(w *env) {
			w.info = foreign
			w.presents(w.ca.Cert)
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			w := newEnv(t)
			w.pins, w.files = []string{pinOf(testpki.New("backup", testpki.ECDSA).Cert), pinOf(w.ca.Cert)},
				[]bootstrap.Credential{w.bare("10-token", "good")}
			prepare(w)
			m := w.manager()
			w.until(m, Active, time.Minute)
			if got := m.current.Cluster; !bytes.Equal(got.Pinned, w.ca.PEM()) || len(got.CA) > 0 {
				t.Errorf("trusted are %s and %s, want the pinned CA alone", got.CA, got.Pinned)
			}
			wantOne(t, "records of the CA", w.records(audit.CAPinned), 1)
			m = w.manager() // and it stays trusted over a restart
			w.until(m, Active, time.Minute)
			if got := w.currentUser(m); got != us {
				t.Errorf("known as %q", got)
			}
			wantOne(t, "records of the CA", w.records(audit.CAPinned), 1)
		})
	}
}

func TestWhatAPinDoesNotFitGetsNoToken(t *testing.T) {
	wanted := testpki.New("cluster", testpki.ECDSA)
	for sentence, c := range map[string]struct {
		prepare func(*env)
		reason  string
	}{
		"a server of another CA": {func(w *env) { w.info = w.ca.PEM(); w.presents(w.ca.Cert) },
			noPin},
		"one that shows the pinned CA and is of another": {func(w *env) { w.info = wanted.PEM() },
			"the pinned CAs do not verify it either"},
		"a pin on the server's own certificate": {func(w *env) {
			leaf, _ := x509.ParseCertificate(w.serving.Certificate[0])
			w.pins = []string{pinOf(leaf)}
		}, leafPin},
		"a pin that is none": {func(w *env) { w.info, w.pins = w.ca.PEM(), []string{"sha256:00"} },
			"missing: the server must be verified"},
	} {
		t.Run(sentence, func(t *testing.T) {
			w := newEnv(t)
			w.pins, w.files = []string{pinOf(wanted.Cert)}, []bootstrap.Credential{w.bare("10-token", "good")}
			c.prepare(w)
			var why []string
			for m, end := w.manager(), w.now.Add(time.Minute); w.now.Before(end); {
				why = append(why, w.advance(m, time.Second).Reason)
			}
			if !slices.ContainsFunc(why, func(s string) bool { return strings.Contains(s, c.reason) }) {
				t.Errorf("reasons are %q, want one with %q", slices.Compact(why), c.reason)
			}
			if w.tokened > 0 || w.made > 0 {
				t.Errorf("%d requests had a token", w.tokened)
			}
		})
	}
}

func TestAStatedCAThatIsStaleIsReplacedByThePinnedOne(t *testing.T) {
	w := newEnv(t)
	stale := w.file("10-token", "good")
	next := testpki.New("next", testpki.ECDSA)
	w.serving, w.info, w.pins, w.files = serving(next).TLS(), next.PEM(), []string{pinOf(next.Cert)},
		[]bootstrap.Credential{stale}
	m := w.manager()
	w.until(m, Active, time.Minute)
	if got := m.current.Cluster; !bytes.Equal(got.CA, w.ca.PEM()) || !bytes.Equal(got.Pinned, next.PEM()) {
		t.Errorf("trusted are %s and %s", got.CA, got.Pinned)
	}
}

func TestAnIdentityOutlivesTheServersCAIfTheNextIsPinned(t *testing.T) {
	for sentence, pinned := range map[string]bool{"pinned": true, "not pinned": false} {
		t.Run(sentence, func(t *testing.T) {
			w, _ := active(t)
			next := testpki.New("next", testpki.ECDSA)
			if pinned {
				w.pins = []string{pinOf(next.Cert)}
			}
			m := w.manager()
			w.until(m, Active, time.Minute)
			w.serving, w.info = serving(next).TLS(), next.PEM()
			s := w.advance(m, 20*time.Minute)
			if s.State != Active || !s.Usable || w.made != 1 {
				t.Errorf("state %s: %s; %d requests", s.State, s.Reason, w.made)
			}
			if got := w.currentUser(w.reborn(m, pinned)); (got == us) != pinned {
				t.Errorf("known as %q", got)
			}
		})
	}
}

// reborn is the manager, or if it should have changed what is durable, one that reads that.
func (w *env) reborn(m *Manager, changed bool) *Manager {
	if changed {
		m = w.manager()
		w.until(m, Active, time.Minute)
	}
	return m
}

func TestARenewalUnderWayMeetsAnotherPinnedCA(t *testing.T) {
	w, _ := active(t)
	next := testpki.New("next", testpki.ECDSA)
	w.pins = []string{pinOf(next.Cert)}
	m := w.manager()
	w.approve = nil
	w.until(m, Renewing, w.life)
	w.serving, w.info, w.approve = serving(next).TLS(), next.PEM(), w.sign
	w.server.CloseClientConnections()
	w.until(m, Active, time.Hour)
	w.advance(m, time.Hour)
	if got := w.currentUser(m); got != us || w.made != 2 || w.records(audit.IdentityRenewed) != 1 {
		t.Errorf("known as %q after %d requests", got, w.made)
	}
}

func TestAPinThatIsTakenBackIsTrustedNoMore(t *testing.T) {
	w := newEnv(t)
	w.pins, w.files, w.info = []string{pinOf(w.ca.Cert)}, []bootstrap.Credential{w.bare("10-token", "good")}, w.ca.PEM()
	w.until(w.manager(), Active, time.Minute)
	w.pins = []string{pinOf(testpki.New("other", testpki.ECDSA).Cert)}
	m := w.manager()
	s := w.advance(m, 15*time.Minute)
	if got := w.currentUser(m); !strings.Contains(got, "unknown authority") || !strings.Contains(s.Reason, noPin) {
		t.Errorf("known as %q; state %s: %s", got, s.State, s.Reason)
	}
}

func TestTheServersCAIsReplacedBetweenRequestAndProof(t *testing.T) {
	w := newEnv(t)
	next := testpki.New("next", testpki.ECDSA)
	w.pins, w.files = []string{pinOf(next.Cert)}, []bootstrap.Credential{w.file("10-token", "good")}
	w.approve = func(r *fakeRequest) { w.sign(r); w.serving, w.info = serving(next).TLS(), next.PEM() }
	m := w.manager()
	w.until(m, Active, time.Minute)
	if got := w.currentUser(m); got != us || w.made != 1 {
		t.Errorf("known as %q after %d requests", got, w.made)
	}
}

func TestAPinnedServerThatDoesNotKnowUsIsNotRemembered(t *testing.T) {
	w, _ := active(t)
	next := testpki.New("next", testpki.ECDSA)
	w.pins = []string{pinOf(next.Cert)}
	m := w.manager()
	w.until(m, Active, time.Minute)
	before := bytes.Clone(w.dir[currentFile])
	w.serving, w.info, w.rolled, m.health.probeAt = serving(next).TLS(), next.PEM(), true, w.now
	w.until(m, Suspect, time.Minute)
	w.advance(m, time.Minute)
	if !bytes.Equal(w.dir[currentFile], before) {
		t.Error("its CA is durable")
	}
}

func TestOthersWhoCannotVerifyTheServerCauseALookIfThereArePins(t *testing.T) {
	for sentence, pinned := range map[string]bool{"with pins": true, "without": false} {
		w, _ := active(t)
		if pinned {
			w.pins = []string{pinOf(w.ca.Cert)}
		}
		m := w.manager()
		w.until(m, Active, time.Minute)
		w.server.CloseClientConnections()
		w.serving = serving(testpki.New("next", testpki.ECDSA)).TLS()
		if res, err := m.HTTPClient().Get(m.Server().String()); err == nil {
			_ = res.Body.Close()
			t.Error("the server was believed")
		}
		if got := len(m.rejected) == 1; got != pinned {
			t.Errorf("%s: told: %v", sentence, got)
		}
	}
}
