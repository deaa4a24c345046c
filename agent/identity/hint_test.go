// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/bootstrap"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// hint is the annotation that leads to this env.
func (w *env) hint() string {
	text, _ := json.Marshal(hint{w.server.URL, w.ca.PEM()})
	return string(text)
}

// successor is another cluster that knows the identities of this one.
func (w *env) successor() *env {
	moved := newEnv(w.t)
	moved.tokens, moved.now, moved.life, moved.clients = map[string]bool{}, w.now, w.life, []*testpki.Authority{w.ca}
	moved.approve = func(r *fakeRequest) { moved.now = w.now; moved.sign(r) }
	return moved
}

func TestAnAnnouncedClusterIsFollowedOnceItKnowsUs(t *testing.T) {
	w, m := active(t)
	moved := w.successor()
	moved.rolled = true // it does not know us yet
	moved.approve = nil
	m.setHint(moved.hint())
	s := w.advance(m, time.Hour)
	if s.State != Active || w.currentUser(m) != us || moved.made != 0 ||
		!strings.Contains(s.Reason, "the announced cluster does not take us yet: the server answered 401") {
		t.Fatalf("state %s: %s; %d requests there", s.State, s.Reason, moved.made)
	}
	moved.rolled = false
	s = w.advance(m, 3*time.Hour) // nobody approves
	if s.State != Renewing || w.currentUser(m) != us || moved.made != 1 || m.current.Cluster.Server != w.server.URL {
		t.Errorf("state %s: %s; %d requests there", s.State, s.Reason, moved.made)
	}
	moved.approve = func(r *fakeRequest) { moved.now = w.now; moved.sign(r) }
	w.until(m, Active, 2*time.Minute)
	if m.current.Cluster.Server != moved.server.URL || w.currentUser(m) != us || w.made != 1 {
		t.Errorf("the server is %s, known as %s", m.current.Cluster.Server, w.currentUser(m))
	}
	if previous, err := decodeGeneration(w.dir[previousFile], "worker-1"); err != nil ||
		previous.Cluster.Server != w.server.URL {
		t.Errorf("the old identity is not kept: %v", err)
	}
	if wait := w.tick(m); wait < time.Minute {
		t.Errorf("nothing is left to do, and it looks again after %v", wait)
	}
	<-m.readings
	wantOne(t, "announcements on record", w.records(audit.ClusterAnnounced), 1)
	wantOne(t, "tokens there", moved.tokened, 0)
}

func TestAHintIsKeptAndUsedWhenTheClusterIsGone(t *testing.T) {
	w, m := active(t)
	moved := w.successor()
	moved.override = func(string) int { return http.StatusServiceUnavailable }
	m.setHint(moved.hint())
	w.advance(m, time.Minute)
	w.server.Close()
	moved.override = func(string) int { return 0 }
	m = w.manager()
	w.until(m, Renewing, time.Hour)
	w.until(m, Active, time.Minute)
	if m.current.Cluster.Server != moved.server.URL || w.currentUser(m) != us {
		t.Errorf("the server is %s, known as %s", m.current.Cluster.Server, w.currentUser(m))
	}
}

func TestAnIdentityThatIsRefusedMayAskAtTheAnnouncedCluster(t *testing.T) {
	w, m := active(t)
	moved := w.successor()
	w.rolled = true
	m.health.probeAt = w.now
	w.until(m, Suspect, time.Minute)
	m.setHint(moved.hint())
	w.until(m, Active, time.Hour)
	if m.current.Cluster.Server != moved.server.URL {
		t.Errorf("the server is %s", m.current.Cluster.Server)
	}
}

func TestAHintSendsNoTokenAnywhere(t *testing.T) {
	w, m := active(t)
	w.keep, w.files = true, []bootstrap.Credential{w.file("20-token", "good")}
	other := newEnv(t)
	other.tokens = map[string]bool{"good": true}
	m.setHint(other.hint())
	w.advance(m, 3*time.Hour)
	m = w.manager()
	w.rolled, m.health.probeAt = true, w.now
	w.advance(m, 3*time.Hour)
	if other.tokened > 0 || other.made > 0 {
		t.Errorf("%d requests with a token, %d for a certificate", other.tokened, other.made)
	}
}

func TestAHintThatIsWithdrawnIsForgotten(t *testing.T) {
	w, m := active(t)
	moved := w.successor()
	moved.approve = nil
	m.setHint(moved.hint())
	w.until(m, Renewing, time.Minute)
	w.advance(m, time.Minute)
	m.setHint("")
	w.until(m, Active, time.Minute)
	w.advance(m, time.Hour)
	for _, name := range []string{hintFile, pendingFile} {
		if _, left := w.dir[name]; left {
			t.Errorf("%s is left", name)
		}
	}
	if m.state != Active || m.reason != "" || m.current.Cluster.Server != w.server.URL || w.made != 1 {
		t.Errorf("state %s: %s, %d requests", m.state, m.reason, w.made)
	}
}

func TestAHintThatCannotBeReadChangesNothing(t *testing.T) {
	ca := data(testpki.NewCA("there"))
	leaf := testpki.New("there", testpki.ECDSA).Client("x").Cert
	for sentence, text := range map[string]string{
		"not JSON":         "https://x",
		"two values":       `{"server":"https://x"}{}`,
		"an unknown field": `{"server":"https://x","token":"abc"}`,
		"http":             `{"server":"http://x"}`,
		"no server":        `{"certificateAuthorityData":"` + ca + `"}`,
		"a user in it":     `{"server":"https://u:p@x"}`,
		"a query":          `{"server":"https://x?y"}`,
		"no base64":        `{"server":"https://x","certificateAuthorityData":"!"}`,
		"no certificate":   `{"server":"https://x","certificateAuthorityData":"aGk="}`,
		"no CA":            `{"server":"https://x","certificateAuthorityData":"` + data(leaf) + `"}`,
	} {
		t.Run(sentence, func(t *testing.T) {
			w, m := active(t)
			good := `{"server":"https://127.0.0.1:1"}`
			m.setHint(good)
			m.setHint(text)
			m.setHint(text)
			if string(w.dir[hintFile]) != good || m.migration.hint.Server != "https://127.0.0.1:1" {
				t.Errorf("kept is %s", w.dir[hintFile])
			}
			wantOne(t, "refusals on record", w.records(audit.Refused), 1)
		})
	}
}

func TestWherePinsAreAHintLeadsToPinnedCAsOnly(t *testing.T) {
	w, _ := active(t)
	moved := w.successor()
	w.pins = []string{pinOf(testpki.New("other", testpki.ECDSA).Cert)}
	m := w.manager()
	w.until(m, Active, time.Second)
	m.setHint(moved.hint())
	if s := w.advance(m, time.Hour); s.State != Active || moved.made > 0 ||
		!strings.Contains(s.Reason, "no CA with a pinned key") {
		t.Errorf("state %s: %s", s.State, s.Reason)
	}
	w.pins = append(w.pins, pinOf(moved.ca.Cert))
	m = w.manager()
	w.until(m, Renewing, time.Minute)
	w.until(m, Active, time.Minute)
	if c := m.current.Cluster; c.Server != moved.server.URL || !bytes.Equal(c.CA, moved.ca.PEM()) {
		t.Errorf("the cluster is %s", c.Server)
	}
}

func TestTwoClustersThatAnnounceEachOtherAreNotVisitedInTurn(t *testing.T) {
	w, m := active(t)
	moved := w.successor()
	m.setHint(moved.hint())
	w.until(m, Renewing, time.Minute)
	w.until(m, Active, time.Minute)
	w.clients = append(w.clients, moved.ca)
	m.setHint(w.hint())
	if w.advance(m, 50*time.Minute); m.current.Cluster.Server != moved.server.URL {
		t.Error("went back at once")
	}
	if w.advance(m, 2*time.Hour); m.current.Cluster.Server != w.server.URL {
		t.Error("did not go back at all")
	}
}

func TestAHintIsIgnoredWhereTheHostSaysSo(t *testing.T) {
	w, m := active(t)
	m.setHint(w.successor().hint())
	m = New(Options{Node: "worker-1", Dir: w, Trail: w, Clock: w, Rand: func() float64 { return 0 }})
	w.until(m, Active, time.Second)
	m.setHint(w.successor().hint())
	if w.advance(m, time.Hour); m.migration.hint != nil || w.dir[hintFile] != nil ||
		m.current.Cluster.Server != w.server.URL {
		t.Error("it was followed or kept")
	}
}

func FuzzHint(f *testing.F) {
	f.Add([]byte(`{"server":"https://x","certificateAuthorityData":"aGk="}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		h, err := parseHint(text)
		if err == nil && !strings.HasPrefix(strings.ToLower(h.Server), "https://") {
			t.Errorf("accepted %q", h.Server)
		}
	})
}

func TestATokenThatIsStillThereIsConsumedAfterTheMove(t *testing.T) {
	w := newEnv(t)
	w.files, w.stuck = []bootstrap.Credential{w.file("10-token", "good")}, errors.New("read-only")
	m := w.manager()
	w.until(m, Active, time.Minute)
	m.setHint(w.successor().hint())
	w.until(m, Renewing, time.Minute)
	w.until(m, Active, time.Minute)
	w.stuck = nil
	if w.advance(m, 2*time.Hour); len(w.files) > 0 {
		t.Error("it is still there")
	}
}
