// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/apiserver"
	"github.com/node-cert-agent/node-cert-agent/agent/bootstrap"
)

// kept is an env with an identity in its directory, as a command finds it.
func kept(t *testing.T) (*env, *apiserver.Conn) {
	t.Helper()
	w := newEnv(t)
	w.files = []bootstrap.Credential{w.file("10-token", "good")}
	w.until(w.manager(), Active, time.Minute)
	id, err := Load(w, "worker-1")
	if err != nil {
		t.Fatal(err)
	}
	return w, id
}

func TestAStandingIsWhatTheServerSays(t *testing.T) {
	w, id := kept(t)
	before := time.Now().Add(-2 * time.Second)
	s := Review(t.Context(), id)
	if s.Status != http.StatusCreated || s.User != us || !s.MayAsk || s.Reason+s.AskReason != "" || s.Untrusted ||
		s.Date.Before(before) {
		t.Errorf("asked when all is well it is %+v", s)
	}
	w.forbids = true
	if s := Review(t.Context(), id); s.Status != http.StatusCreated || s.MayAsk {
		t.Errorf("without the permission it is %+v", s)
	}
	w.override = func(what string) int {
		if strings.Contains(what, "access") {
			return http.StatusInternalServerError
		}
		return 0
	}
	if s := Review(t.Context(), id); s.MayAsk || !strings.Contains(s.AskReason, "500") {
		t.Errorf("when the permission cannot be asked for it is %+v", s)
	}
	w.rolled = true
	if s := Review(t.Context(), id); s.Status != http.StatusUnauthorized || s.Reason == "" || s.MayAsk {
		t.Errorf("when we are unknown it is %+v", s)
	}
	w.server.Close()
	if s := Review(t.Context(), id); s.Status != 0 || s.Reason == "" || s.Untrusted {
		t.Errorf("without a server it is %+v", s)
	}
}

func TestTrustMayBeAddedForALook(t *testing.T) {
	w, _ := kept(t)
	next := w.next()
	w.reissued(next)
	id, err := Load(w, "worker-1")
	if err != nil {
		t.Fatal(err)
	}
	if s := Review(t.Context(), id); s.Status != 0 || !s.Untrusted {
		t.Errorf("a server with another CA: %+v", s)
	}
	id, err = id.Trusting(slices.Concat(w.ca.PEM(), next.PEM()))
	if err != nil {
		t.Fatal(err)
	}
	if s := Review(t.Context(), id); s.User != us {
		t.Errorf("with its CA: %+v", s)
	}
}

func TestTheCertificateIsShownWithoutItsKey(t *testing.T) {
	w, id := kept(t)
	block, rest := pem.Decode(id.Certificate())
	if block == nil || len(rest) != 0 {
		t.Fatalf("it is %q", id.Certificate())
	}
	if c, err := x509.ParseCertificate(block.Bytes); err != nil || c.Subject.CommonName != us {
		t.Errorf("it is of %v, %v", c.Subject, err)
	}
	if strings.Contains(string(id.Certificate()), "KEY") || len(w.dir) == 0 {
		t.Error("the key is in it")
	}
}
