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
	"github.com/node-cert-agent/node-cert-agent/tests/testpki"
)

// hint is the annotation that leads to this world.
func (w *world) hint() string {
	text, _ := json.Marshal(hint{w.server.URL, w.ca.PEM()})
	return string(text)
}

// successor is another cluster that knows the identities of this one.
func (w *world) successor() *world {
	moved := newWorld(w.t)
	moved.tokens, moved.now, moved.life, moved.clients = map[string]bool{}, w.now, w.life, []*testpki.Authority{w.ca}
	moved.approve = func(r *twin) { moved.now = w.now; moved.sign(r) }
	return moved
}

func TestAnAnnouncedClusterIsFollowedOnceItKnowsUs(t *testing.T) {
	w, k := active(t)
	moved := w.successor()
	moved.rolled = true // it does not know us yet
	moved.approve = nil
	k.setHint(moved.hint())
	s := w.pass(k, time.Hour)
	if s.State != Active || w.whoGoesThrough(k) != us || moved.made != 0 ||
		!strings.Contains(s.Reason, "the announced cluster does not take us yet: the server answered 401") {
		t.Fatalf("state %s: %s; %d requests there", s.State, s.Reason, moved.made)
	}
	moved.rolled = false
	s = w.pass(k, 3*time.Hour) // nobody approves
	if s.State != Renewing || w.whoGoesThrough(k) != us || moved.made != 1 || k.current.Cluster.Server != w.server.URL {
		t.Errorf("state %s: %s; %d requests there", s.State, s.Reason, moved.made)
	}
	moved.approve = func(r *twin) { moved.now = w.now; moved.sign(r) }
	w.until(k, Active, 2*time.Minute)
	if k.current.Cluster.Server != moved.server.URL || w.whoGoesThrough(k) != us || w.made != 1 {
		t.Errorf("the server is %s, known as %s", k.current.Cluster.Server, w.whoGoesThrough(k))
	}
	if previous, err := decodeGeneration(w.dir[previousFile], "worker-1"); err != nil ||
		previous.Cluster.Server != w.server.URL {
		t.Errorf("the old identity is not kept: %v", err)
	}
	if wait := w.tick(k); wait < time.Minute {
		t.Errorf("nothing is left to do, and it looks again after %v", wait)
	}
	<-k.readings
	wantOne(t, "announcements on record", w.records(audit.ClusterAnnounced), 1)
	wantOne(t, "tokens there", moved.tokened, 0)
}

func TestAHintIsKeptAndUsedWhenTheClusterIsGone(t *testing.T) {
	w, k := active(t)
	moved := w.successor()
	moved.override = func(string) int { return http.StatusServiceUnavailable }
	k.setHint(moved.hint())
	w.pass(k, time.Minute)
	w.server.Close()
	moved.override = func(string) int { return 0 }
	k = w.keeper()
	w.until(k, Renewing, time.Hour)
	w.until(k, Active, time.Minute)
	if k.current.Cluster.Server != moved.server.URL || w.whoGoesThrough(k) != us {
		t.Errorf("the server is %s, known as %s", k.current.Cluster.Server, w.whoGoesThrough(k))
	}
}

func TestAnIdentityThatIsRefusedMayAskAtTheAnnouncedCluster(t *testing.T) {
	w, k := active(t)
	moved := w.successor()
	w.rolled = true
	k.health.probeAt = w.now
	w.until(k, Suspect, time.Minute)
	k.setHint(moved.hint())
	w.until(k, Active, time.Hour)
	if k.current.Cluster.Server != moved.server.URL {
		t.Errorf("the server is %s", k.current.Cluster.Server)
	}
}

func TestAHintSendsNoTokenAnywhere(t *testing.T) {
	w, k := active(t)
	w.keep, w.files = true, []bootstrap.Credential{w.file("20-token", "good")}
	stranger := newWorld(t)
	stranger.tokens = map[string]bool{"good": true}
	k.setHint(stranger.hint())
	w.pass(k, 3*time.Hour)
	k = w.keeper()
	w.rolled, k.health.probeAt = true, w.now
	w.pass(k, 3*time.Hour)
	if stranger.tokened > 0 || stranger.made > 0 {
		t.Errorf("%d requests with a token, %d for a certificate", stranger.tokened, stranger.made)
	}
}

func TestAHintThatIsWithdrawnIsForgotten(t *testing.T) {
	w, k := active(t)
	moved := w.successor()
	moved.approve = nil
	k.setHint(moved.hint())
	w.until(k, Renewing, time.Minute)
	w.pass(k, time.Minute)
	k.setHint("")
	w.until(k, Active, time.Minute)
	w.pass(k, time.Hour)
	for _, name := range []string{hintFile, pendingFile} {
		if _, left := w.dir[name]; left {
			t.Errorf("%s is left", name)
		}
	}
	if k.state != Active || k.reason != "" || k.current.Cluster.Server != w.server.URL || w.made != 1 {
		t.Errorf("state %s: %s, %d requests", k.state, k.reason, w.made)
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
			w, k := active(t)
			good := `{"server":"https://127.0.0.1:1"}`
			k.setHint(good)
			k.setHint(text)
			k.setHint(text)
			if string(w.dir[hintFile]) != good || k.migration.hint.Server != "https://127.0.0.1:1" {
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
	k := w.keeper()
	w.until(k, Active, time.Second)
	k.setHint(moved.hint())
	if s := w.pass(k, time.Hour); s.State != Active || moved.made > 0 ||
		!strings.Contains(s.Reason, "no CA with a pinned key") {
		t.Errorf("state %s: %s", s.State, s.Reason)
	}
	w.pins = append(w.pins, pinOf(moved.ca.Cert))
	k = w.keeper()
	w.until(k, Renewing, time.Minute)
	w.until(k, Active, time.Minute)
	if c := k.current.Cluster; c.Server != moved.server.URL || !bytes.Equal(c.CA, moved.ca.PEM()) {
		t.Errorf("the cluster is %s", c.Server)
	}
}

func TestTwoClustersThatAnnounceEachOtherAreNotVisitedInTurn(t *testing.T) {
	w, k := active(t)
	moved := w.successor()
	k.setHint(moved.hint())
	w.until(k, Renewing, time.Minute)
	w.until(k, Active, time.Minute)
	w.clients = append(w.clients, moved.ca)
	k.setHint(w.hint())
	if w.pass(k, 50*time.Minute); k.current.Cluster.Server != moved.server.URL {
		t.Error("went back at once")
	}
	if w.pass(k, 2*time.Hour); k.current.Cluster.Server != w.server.URL {
		t.Error("did not go back at all")
	}
}

func TestAHintIsIgnoredWhereTheHostSaysSo(t *testing.T) {
	w, k := active(t)
	k.setHint(w.successor().hint())
	k = New(Options{Node: "worker-1", Dir: w, Trail: w, Clock: w, Rand: func() float64 { return 0 }})
	w.until(k, Active, time.Second)
	k.setHint(w.successor().hint())
	if w.pass(k, time.Hour); k.migration.hint != nil || w.dir[hintFile] != nil ||
		k.current.Cluster.Server != w.server.URL {
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
	w := newWorld(t)
	w.files, w.stuck = []bootstrap.Credential{w.file("10-token", "good")}, errors.New("read-only")
	k := w.keeper()
	w.until(k, Active, time.Minute)
	k.setHint(w.successor().hint())
	w.until(k, Renewing, time.Minute)
	w.until(k, Active, time.Minute)
	w.stuck = nil
	if w.pass(k, 2*time.Hour); len(w.files) > 0 {
		t.Error("it is still there")
	}
}
