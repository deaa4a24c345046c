// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/bootstrap"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/secret"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/kubeconfigs"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/wallclock"
)

const us = "node-cert-agent:node:worker-1"

// active is an env with a manager that has got its identity from one token.
func active(t *testing.T) (*env, *Manager) {
	t.Helper()
	w := newEnv(t)
	w.files = []bootstrap.Credential{w.file("10-token.kubeconfig", "good")}
	m := w.manager()
	w.until(m, Active, time.Minute)
	return w, m
}

func wantOne(t *testing.T, what string, got, want int) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %d, want %d", what, got, want)
	}
}

func TestFromATokenToAnIdentity(t *testing.T) {
	w, m := active(t)
	if got := w.currentUser(m); got != us {
		t.Errorf("known as %q", got)
	}
	wantOne(t, "requests", w.made, 1)
	wantOne(t, "proofs on record", w.records(audit.IdentityProven), 1)
	if !slices.Equal(w.consumed, []string{"10-token.kubeconfig"}) || w.records(audit.CredentialConsumed) != 1 {
		t.Errorf("consumed %v", w.consumed)
	}
	if _, ok := w.dir[pendingFile]; ok {
		t.Error("the pending key stayed")
	}
	for _, f := range []string{"CERTIFICATE", "PRIVATE KEY"} {
		if !bytes.Contains(w.dir[currentFile], []byte("-----BEGIN "+f)) {
			t.Errorf("%s holds no %s", currentFile, f)
		}
	}
}

func TestTheIdentityOutlivesARestart(t *testing.T) {
	w, _ := active(t)
	m := w.manager()
	w.until(m, Active, time.Second)
	if got := w.currentUser(m); got != us || w.made != 1 {
		t.Errorf("known as %q after %d requests", got, w.made)
	}
}

func TestAnAbsentApproverIsPatience(t *testing.T) {
	w := newEnv(t)
	w.files, w.approve = []bootstrap.Credential{w.file("token", "good")}, nil
	m := w.manager()
	w.until(m, Pending, time.Minute)
	key := bytes.Clone(w.dir[pendingFile])
	for range 3 { // restarts included
		s := w.advance(m, 9*time.Hour)
		if s.State != Pending || !strings.Contains(s.Reason, "waiting for approval") {
			t.Errorf("state %s: %s", s.State, s.Reason)
		}
		m = w.manager()
	}
	wantOne(t, "requests", w.made, 1)
	if !bytes.Equal(key, w.dir[pendingFile]) {
		t.Error("the key changed")
	}
	w.approve = w.sign
	w.until(m, Active, 2*time.Minute)
	wantOne(t, "requests", w.made, 1)
}

func TestAnApprovalWithinTheFirstMinutesIsSeenWithinFiveSeconds(t *testing.T) {
	w := newEnv(t)
	w.files, w.approve = []bootstrap.Credential{w.file("token", "good")}, nil
	m := w.manager()
	w.until(m, Pending, time.Minute)
	for asked := w.now; w.now.Before(asked.Add(100 * time.Second)); {
		before := w.now
		w.advance(m, time.Millisecond) // one look, and the pause after it
		if pause := w.now.Sub(before); pause > 5*time.Second {
			t.Errorf("%v after the request, nobody looks at it for %v", before.Sub(asked), pause)
		}
	}
	w.approve = w.sign
	w.until(m, Active, 5*time.Second)
}

func TestADeniedRequestIsFollowedByAnotherAfterAPause(t *testing.T) {
	w := newEnv(t)
	w.files = []bootstrap.Credential{w.file("token", "good")}
	w.approve = func(r *fakeRequest) {
		r.Status.Conditions = []condition{{Type: "Denied", Status: "True", Reason: "NodeUnknown", Message: "no such node"}}
	}
	m := w.manager()
	s := w.advance(m, 4*time.Minute)
	if s.State != Requesting || !strings.Contains(s.Reason, "Denied: NodeUnknown: no such node; asking again at ") {
		t.Errorf("state %s: %s", s.State, s.Reason)
	}
	m = w.manager() // a restart does not shorten the pause
	w.advance(m, 4*time.Minute)
	wantOne(t, "requests in 4 minutes", w.made, 1)
	w.advance(m, 24*time.Hour)
	if w.made < 20 || w.made > 32 {
		t.Errorf("%d requests in a day, want about one an hour", w.made)
	}
	made := w.made
	w.approve = w.sign
	w.files = append(w.files, w.file("token-2", "good"))
	w.until(m, Active, time.Minute) // a new file ends the pause
	wantOne(t, "requests", w.made, made+1)
}

func TestADeletedRequestIsMadeAgainWithTheSameKey(t *testing.T) {
	w := newEnv(t)
	w.files, w.approve = []bootstrap.Credential{w.file("token", "good")}, nil
	m := w.manager()
	w.until(m, Pending, time.Minute)
	key := bytes.Clone(w.dir[pendingFile])
	var name string
	for name = range w.requests {
		delete(w.requests, name)
	}
	w.advance(m, 5*time.Minute)
	if w.requests[name] == nil || !bytes.Equal(key, w.dir[pendingFile]) {
		t.Error("another request was made")
	}
	wantOne(t, "requests", w.made, 2)
}

func TestTheSameCredentialAgainIsThereToBeUsed(t *testing.T) {
	w, _ := active(t)
	w.files = []bootstrap.Credential{w.file("10-token.kubeconfig", "good")}
	m := w.manager()
	w.advance(m, 2*time.Hour)
	if len(w.files) == 0 {
		t.Error("it was consumed without having served")
	}
}

func TestARenewalHappensBetween70And90Percent(t *testing.T) {
	w, m := active(t)
	first := w.dir[currentFile]
	start := w.now
	w.until(m, Renewing, w.life)
	if part := float64(w.now.Sub(start)) / float64(w.life); part < 0.69 || part > 0.91 {
		t.Errorf("renewed at %.2f of the life", part)
	}
	w.until(m, Active, time.Minute)
	if got := w.currentUser(m); got != us || w.made != 2 || bytes.Equal(first, w.dir[currentFile]) {
		t.Errorf("known as %q after %d requests", got, w.made)
	}
	if !bytes.Equal(first, w.dir[previousFile]) {
		t.Error("the previous generation is not kept")
	}
	wantOne(t, "renewals on record", w.records(audit.IdentityRenewed), 1)
}

func TestWhileARenewalIsPendingTheIdentityWorks(t *testing.T) {
	w, m := active(t)
	w.approve = nil
	w.until(m, Renewing, w.life)
	if s := w.advance(m, time.Hour); s.State != Renewing || !s.Usable || w.currentUser(m) != us {
		t.Errorf("state %s: %s", s.State, s.Reason)
	}
	wantOne(t, "requests", w.made, 2)
}

func TestACertificateThatExpiredWhileTheAgentWasOff(t *testing.T) {
	w, _ := active(t)
	w.files = []bootstrap.Credential{w.file("another", "good")}
	w.now = w.now.Add(2 * w.life)
	m := w.manager()
	w.until(m, Suspect, time.Second) // it was tried first
	w.until(m, Active, time.Minute)
	if got := w.currentUser(m); got != us {
		t.Errorf("known as %q", got)
	}
}

// A kill between the deletion of the file that has served and the note of it leaves the note standing.
// The same token delivered again must then not be deleted on the word of an identity that is dead.
func TestACredentialThatComesAgainServesAnIdentityThatIsDead(t *testing.T) {
	w, m := active(t)
	again := w.file("20-token.kubeconfig", "good")
	noted := *m.current
	noted.Credential = again.Digest
	if err := m.store.write(currentFile, &noted); err != nil {
		t.Fatal(err)
	}
	w.files = []bootstrap.Credential{again}
	w.now = w.now.Add(2 * w.life)
	approve := w.approve
	w.approve = nil
	m = w.manager()
	if s := w.advance(m, 5*time.Minute); s.State != Pending || len(w.files) != 1 {
		t.Fatalf("state %s: %s; %d files left", s.State, s.Reason, len(w.files))
	}
	w.approve = approve
	w.until(m, Active, 2*time.Minute)
}

func TestARolledClientCA(t *testing.T) {
	w, m := active(t)
	w.files = []bootstrap.Credential{w.file("another", "good")}
	w.rolled = true
	m.health.probeAt = w.now
	w.until(m, Suspect, time.Minute)
	before := w.now
	w.until(m, Requesting, time.Hour)
	if d := w.now.Sub(before); d < 2*time.Minute {
		t.Errorf("given up after %v", d)
	}
	w.override = func(what string) int { w.rolled = what == "GET request"; return 0 } // the new certificate is known
	w.until(m, Active, time.Minute)
	if _, ok := w.dir[previousFile]; !ok {
		t.Error("the old identity is gone")
	}
}

func TestOneRefusalOfSeveralServersIsNoLoss(t *testing.T) {
	w, m := active(t)
	w.rolled, m.health.probeAt = true, w.now
	w.until(m, Suspect, time.Minute)
	w.rolled = false
	w.until(m, Active, time.Minute)
	wantOne(t, "requests", w.made, 1)
}

func TestATokenThatEndedIsReplacedWhileRunning(t *testing.T) {
	w := newEnv(t)
	w.files = []bootstrap.Credential{w.file("old", "ended")}
	m := w.manager()
	s := w.advance(m, time.Hour)
	if s.State != NoCredential || !strings.Contains(s.Reason, "old: the server answered 401") {
		t.Errorf("state %s: %s", s.State, s.Reason)
	}
	w.files = []bootstrap.Credential{w.file("old", "good")}
	w.until(m, Active, 15*time.Second)
}

func TestFilesThatAreRefusedAreNamedAndTheNextIsTried(t *testing.T) {
	w := newEnv(t)
	bad := w.file("10-bad", "good")
	bad.Content = testFile("users: [{name: u, user: {exec: {command: x}}}]")
	w.files = []bootstrap.Credential{bad, {ID: bootstrap.ID{Name: "20-mode"}, Refused: "readable by others"},
		w.file("30-ended", "ended"), w.file("40-good", "good")}
	m := w.manager()
	w.until(m, Active, time.Minute)
	var why []string
	for _, r := range w.trail {
		if r.Kind == audit.CredentialRefused {
			why = append(why, r.Message)
		}
	}
	if len(why) != 3 || !slices.Equal(w.consumed, []string{"40-good"}) {
		t.Errorf("refused %q, consumed %q", why, w.consumed)
	}
	if w.advance(m, 3*time.Hour); w.records(audit.CredentialRefused) != 3 {
		t.Error("a refusal is on record more than once")
	}
}

func TestNothingIsSentWithAFileThatIsRefused(t *testing.T) {
	for sentence, change := range map[string]func(w *env, good string) string{
		"exec": func(_ *env, s string) string {
			return strings.Replace(s, "{token:", "{exec: {command: x}, token:", 1)
		},
		"auth-provider": func(_ *env, s string) string {
			return strings.Replace(s, "{token:", "{auth-provider: {name: x}, token:", 1)
		},
		"a server that is not verified": func(_ *env, s string) string {
			return strings.Replace(s, "{server:", "{insecure-skip-tls-verify: true, server:", 1)
		},
		"a CA that is none": func(w *env, _ string) string {
			return string(kubeconfigs.Token(w.server.URL, w.ca.Client("somebody").Cert, "good"))
		},
		"no YAML": func(_ *env, s string) string { return s + "'" },
	} {
		t.Run(sentence, func(t *testing.T) {
			w := newEnv(t)
			f := w.file("10-bad", "good")
			changed := change(w, string(f.Content.Reveal()))
			if changed == string(f.Content.Reveal()) {
				t.Fatal("nothing is wrong with it")
			}
			f.Content = testFile(changed)
			w.files = []bootstrap.Credential{f}
			m := w.manager()
			w.advance(m, time.Hour)
			if m.state != NoCredential || w.tokened != 0 || w.records(audit.CredentialRefused) != 1 ||
				!strings.HasPrefix(m.reason, "10-bad: ") {
				t.Errorf("%s: %q; %d requests, %d records", m.state, m.reason, w.tokened, w.records(audit.CredentialRefused))
			}
		})
	}
}

func TestDamagedIdentityFiles(t *testing.T) {
	w, m := active(t)
	w.until(m, Renewing, w.life)
	w.until(m, Active, time.Minute)
	good, previous := w.dir[currentFile], w.dir[previousFile]
	other := testpki.New("cluster", testpki.ECDSA).Client(us, "node-cert-agent:nodes")
	cut := bytes.Index(good, []byte("-----BEGIN PRIVATE"))
	notes := bytes.Index(good, []byte("-----BEGIN NODE"))
	for sentence, damaged := range map[string][]byte{
		"truncated in the certificate": good[:cut/2],
		"truncated after it":           good[:cut],
		"without the notes":            good[:notes],
		"empty":                        {},
		"zeros":                        make([]byte, 4096),
		"a key of another certificate": slices.Concat(good[:cut], other.Key, good[notes:]),
		"another node's":               bytes.Replace(good, good[:cut], []byte("x"), 1),
	} {
		t.Run(sentence, func(t *testing.T) {
			w.dir = map[string][]byte{currentFile: damaged, previousFile: previous}
			w.trail = nil
			m := w.manager()
			w.tick(m)
			<-m.readings
			if got := w.currentUser(m); got != us {
				t.Errorf("known as %q", got)
			}
			if !bytes.Equal(w.dir[currentFile+bad], damaged) || w.records(audit.IdentityLost) != 1 {
				t.Error("the file is not set aside and on record")
			}
		})
	}
}

func TestWithBothGenerationsDamagedTheTokenServes(t *testing.T) {
	w, _ := active(t)
	w.dir = map[string][]byte{currentFile: []byte("x"), previousFile: []byte("y"), pendingFile: []byte("z")}
	w.files = []bootstrap.Credential{w.file("another", "good")}
	m := w.manager()
	w.until(m, Active, time.Minute)
	wantOne(t, "losses on record", w.records(audit.IdentityLost), 3)
}

func TestAStartingServerCostsNoCredential(t *testing.T) {
	for _, status := range []int{http.StatusForbidden, http.StatusTooManyRequests, http.StatusServiceUnavailable,
		http.StatusInternalServerError} {
		w := newEnv(t)
		w.files = []bootstrap.Credential{w.file("token", "good")}
		w.override = func(string) int { return status }
		m := w.manager()
		if s := w.advance(m, 5*time.Minute); s.State != Requesting {
			t.Errorf("%d: state %s: %s", status, s.State, s.Reason)
		}
		w.override = func(string) int { return 0 }
		w.until(m, Active, time.Minute)

		w.override = func(string) int { return status }
		if s := w.advance(m, time.Minute); status != http.StatusForbidden && s.State != Active {
			t.Errorf("%d: state %s: %s", status, s.State, s.Reason)
		}
		w.override = func(string) int { return 0 }
		w.until(m, Active, 5*time.Minute)
		wantOne(t, "requests", w.made, 1)
	}
}

func TestAForbiddenWatchUnderOurOwnNameIsAFaultOfRBAC(t *testing.T) {
	w, m := active(t)
	m.health.probeAt, m.health.lastStatus = w.now, http.StatusForbidden
	s := w.advance(m, time.Second)
	if s.State != Active || !strings.Contains(s.Reason, "known as "+us) || !strings.Contains(s.Reason, "RBAC") {
		t.Errorf("state %s: %s", s.State, s.Reason)
	}
	if s := w.advance(m, 5*time.Minute); s.Reason != "" {
		t.Errorf("the reason stays: %s", s.Reason)
	}
}

func TestWhatIsForbiddenForAMomentCastsNoDoubt(t *testing.T) {
	const wait = 5 * time.Second
	for _, c := range []struct {
		what    string
		answers []int
		after   time.Duration
		reviews int
	}{
		{"an answer that says nothing", []int{http.StatusServiceUnavailable}, time.Minute, 0},
		{"the server forgot us", []int{http.StatusUnauthorized}, 0, 1},
		{"what is forbidden, at once", []int{http.StatusForbidden}, wait - time.Second, 0},
		{"what stays forbidden", []int{http.StatusForbidden, http.StatusForbidden}, wait, 1},
		{"what then succeeds", []int{http.StatusForbidden, http.StatusOK}, time.Minute, 0},
		{"what then fails otherwise", []int{http.StatusForbidden, http.StatusServiceUnavailable}, wait, 1},
		{"what is forbidden again", []int{http.StatusForbidden, http.StatusOK, http.StatusForbidden}, wait, 1},
		{"a doubt that success does not end", []int{http.StatusUnauthorized, http.StatusOK}, 0, 1},
	} {
		w, m := active(t)
		w.tick(m) // the first probe
		reviews := 0
		w.override = func(what string) int {
			if what == "POST selfsubjectreviews" {
				reviews++
			}
			return 0
		}
		for _, status := range c.answers {
			m.answered(status)
			select {
			case status := <-m.rejected:
				m.doubt(status)
			default:
			}
		}
		w.now = w.now.Add(c.after)
		if s := m.tick(t.Context()); reviews != c.reviews || m.state != Active {
			t.Errorf("%s: %d probes, want %d; state %s, next in %v", c.what, reviews, c.reviews, m.state, s)
		}
	}
}

func TestAServerThatMostlyFailsIsPolledNoMoreOftenThanOneThatDoesNot(t *testing.T) {
	polls := func(fails func(poll int) bool) (n int) {
		w := newEnv(t)
		w.files = []bootstrap.Credential{w.file("token", "good")}
		w.approve = func(*fakeRequest) {}
		w.override = func(what string) int {
			if what == "GET request" {
				if n++; fails(n) {
					return http.StatusServiceUnavailable
				}
			}
			return 0
		}
		m := w.manager()
		w.until(m, Pending, time.Minute)
		w.advance(m, 10*time.Minute)
		return n
	}
	good := polls(func(int) bool { return false })
	if bad := polls(func(poll int) bool { return poll%5 != 0 }); bad > good*5/4 || good < 10 {
		t.Errorf("in ten minutes it is polled %d times, and one that is well %d times", bad, good)
	}
}

func TestANewCertificateThatIsNotKnownYet(t *testing.T) {
	w := newEnv(t)
	w.files = []bootstrap.Credential{w.file("token", "good")}
	w.rolled = true
	m := w.manager()
	if s := w.advance(m, 5*time.Minute); s.State != Proving || len(w.consumed) > 0 {
		t.Errorf("state %s: %s, consumed %v", s.State, s.Reason, w.consumed)
	}
	w.rolled = false
	w.until(m, Active, time.Minute)
	wantOne(t, "requests", w.made, 1)
}

func TestOldConnectionsEndAfterTheSwap(t *testing.T) {
	w, m := active(t)
	old := m.transport.Conn()
	w.until(m, Renewing, w.life)
	w.until(m, Active, time.Minute)
	if m.transport.Conn() == old {
		t.Error("the link is the old one")
	}
	select {
	case <-m.Rotated():
	default:
		t.Error("nobody was told")
	}
}

func TestTheTransportLeadsToTheServer(t *testing.T) {
	w, m := active(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		m.Server().JoinPath("apis", "x").String()+"?watch=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := m.HTTPClient().Do(req)
	if err != nil || res.StatusCode != http.StatusNotFound {
		t.Fatalf("%v, %v", res, err)
	}
	_ = res.Body.Close()
	if _, err := w.manager().HTTPClient().Do(req.Clone(context.Background())); err == nil ||
		!strings.Contains(err.Error(), "this node has no identity yet") {
		t.Errorf("without an identity: %v", err)
	}
}

func testFile(s string) secret.Bytes { return secret.New([]byte(s)) }

func TestThePreviousGenerationIsTheFirstToAsk(t *testing.T) {
	w, m := active(t)
	w.until(m, Renewing, w.life)
	w.until(m, Active, time.Minute)
	w.revoked = m.current.leaf.SerialNumber.Text(16)
	w.files = []bootstrap.Credential{w.file("token", "good")}
	m.health.probeAt = w.now
	w.until(m, Requesting, time.Hour)
	w.until(m, Active, time.Minute)
	if got := w.currentUser(m); got != us || len(w.files) == 0 {
		t.Errorf("known as %q, and the token was used: %v", got, len(w.files) == 0)
	}
}

func TestAReplacedFileIsAskedWithWhileARequestWaits(t *testing.T) {
	w := newEnv(t)
	w.files, w.approve = []bootstrap.Credential{w.file("token", "good")}, nil
	m := w.manager()
	w.until(m, Pending, time.Minute)
	other := newEnv(t)
	other.tokens["other"] = true
	w.files = []bootstrap.Credential{other.file("token", "other")}
	w.until(m, Active, time.Minute)
	if m.current.Cluster.Server != other.server.URL {
		t.Error("the old cluster is still asked")
	}
}

func TestABootstrapDirectoryThatCannotBeReadIsAskedForInPeace(t *testing.T) {
	w, _ := active(t)
	w.broken = errors.New("no writer")
	m := w.manager()
	w.until(m, Active, time.Second)
	if looks := w.polls; w.advance(m, time.Hour).State != Active || w.polls-looks > 361 {
		t.Errorf("%d looks in an hour", w.polls-looks)
	}
	w = newEnv(t)
	w.broken = errors.New("no writer")
	m = w.manager()
	if s := w.advance(m, time.Hour); s.State != NoCredential || !strings.Contains(s.Reason, "no writer") || w.polls > 361 {
		t.Errorf("%d looks in an hour, state %s: %s", w.polls, s.State, s.Reason)
	}
}

func TestTheKubeletsCertificateServesWhenNothingElseDoes(t *testing.T) {
	w, _ := active(t)
	pair := w.ca.Client("system:node:worker-1", "system:nodes")
	kubelet := bootstrap.ID{Name: bootstrap.Kubelet, Digest: plan.DigestOf(pair.Cert)}
	w.files = []bootstrap.Credential{w.file("ended", "ended"),
		{ID: kubelet, Content: secret.New(slices.Concat(pair.Cert, pair.Key))}}
	w.now = w.now.Add(8 * time.Hour) // within the life of the test's kubelet, past that of ours
	w.revoked = serial(t, w)
	delete(w.dir, previousFile)
	m := w.manager()
	w.tick(m)
	<-m.readings
	m.health.probeAt = w.now
	w.until(m, Requesting, time.Hour)
	w.until(m, Active, time.Minute)
	if got := w.currentUser(m); got != us || len(w.files) != 2 {
		t.Errorf("known as %q with %d files left", got, len(w.files))
	}

	fresh := newEnv(t)
	fresh.files = w.files[1:]
	if s := fresh.advance(fresh.manager(), time.Minute); s.State != NoCredential ||
		!strings.Contains(s.Reason, "none is known") {
		t.Errorf("without a known cluster: state %s: %s", s.State, s.Reason)
	}
}

// serial is that of the identity on disk.
func serial(t *testing.T, w *env) string {
	t.Helper()
	g, err := decodeGeneration(w.dir[currentFile], "worker-1")
	if err != nil {
		t.Fatal(err)
	}
	return g.leaf.SerialNumber.Text(16)
}

func TestAClusterThatMovedIsFollowedAndTheOldIdentityWorksUntilThen(t *testing.T) {
	w, m := active(t)
	moved := newEnv(t)
	moved.tokens, moved.approve, moved.now = map[string]bool{"there": true}, nil, w.now
	w.files = []bootstrap.Credential{moved.file("20-moved", "there")}
	w.until(m, Renewing, 2*time.Hour)
	moved.now = w.now
	if s := w.advance(m, 3*time.Hour); s.State != Renewing || w.currentUser(m) != us || moved.made != 1 || w.made != 1 {
		t.Errorf("state %s: %s, %d requests there, %d here", s.State, s.Reason, moved.made, w.made)
	}
	moved.approve = func(r *fakeRequest) { moved.now = w.now; moved.sign(r) }
	w.until(m, Active, 2*time.Minute)
	if m.current.Cluster.Server != moved.server.URL || w.currentUser(m) != us || len(w.files) > 0 {
		t.Errorf("the server is %s, known as %s, %d files left", m.current.Cluster.Server, w.currentUser(m), len(w.files))
	}
	if previous, err := decodeGeneration(w.dir[previousFile], "worker-1"); err != nil ||
		previous.Cluster.Server != w.server.URL {
		t.Errorf("the old identity is not kept: %v", err)
	}
}

func TestOfTwoKeptFilesTheLaterOneWinsAndThatIsThat(t *testing.T) {
	w, m := active(t)
	moved := newEnv(t)
	moved.tokens, moved.now = map[string]bool{"there": true}, w.now.Add(time.Hour)
	w.files = []bootstrap.Credential{w.file("10-token.kubeconfig", "good"), moved.file("20-moved", "there")}
	w.keep = true
	w.advance(m, 3*time.Hour)
	if m.current.Cluster.Server != moved.server.URL || moved.made != 1 || w.made != 1 {
		t.Errorf("the server is %s after %d requests here and %d there", m.current.Cluster.Server, w.made, moved.made)
	}
}

func TestARenewalComesBeforeAMove(t *testing.T) {
	w, m := active(t)
	moved := newEnv(t)
	moved.tokens, moved.approve, moved.now = map[string]bool{"there": true}, nil, w.now
	w.files = []bootstrap.Credential{moved.file("20-moved", "there")}
	w.advance(m, w.life)
	if w.made != 2 || w.records(audit.IdentityRenewed) != 1 || w.currentUser(m) != us {
		t.Errorf("%d requests, known as %s", w.made, w.currentUser(m))
	}
}

func TestAMoveThatFailsLeavesEverythingAsItWas(t *testing.T) {
	w, m := active(t)
	moved := newEnv(t)
	w.files = []bootstrap.Credential{moved.file("20-moved", "ended")}
	s := w.advance(m, 3*time.Hour)
	if _, ok := w.dir[pendingFile]; ok || s.State != Active || w.made != 1 || w.currentUser(m) != us {
		t.Errorf("state %s: %s, %d requests, a pending key: %v", s.State, s.Reason, w.made, ok)
	}
}

func TestARenewalThatWouldBeForbiddenIsKnownEarly(t *testing.T) {
	w := newEnv(t)
	w.files, w.forbids = []bootstrap.Credential{w.file("token", "good")}, true
	m := w.manager()
	w.until(m, Active, time.Minute)
	if s := w.advance(m, time.Hour); s.State != Active || !strings.Contains(s.Reason, "a renewal would fail: "+us) {
		t.Errorf("state %s: %s", s.State, s.Reason)
	}
	wantOne(t, "warnings on record", w.records(audit.RenewalForbidden), 1)
	w.forbids = false
	if s := w.advance(m, time.Hour); s.State != Active || s.Reason != "" {
		t.Errorf("state %s: %s", s.State, s.Reason)
	}
}

func TestWhatThereIsIsUsableBeforeAnybodyIsAsked(t *testing.T) {
	w, _ := active(t)
	w.contact = func(what string) {
		if what == "bootstrap" {
			t.Error("the bootstrap directory was asked for")
		}
	}
	w.override = func(what string) int { t.Errorf("the server was asked: %s", what); return 0 }
	m := w.manager()
	w.tick(m)
	if s := <-m.readings; !s.Usable || s.State != Active {
		t.Errorf("state %s: %s", s.State, s.Reason)
	}
}

// lost is an env whose API server has just given the identity up, with another token at hand.
func lost(t *testing.T) (*env, *Manager) {
	t.Helper()
	w, m := active(t)
	w.files, w.revoked, m.health.probeAt = []bootstrap.Credential{w.file("another", "good")},
		m.current.leaf.SerialNumber.Text(16), w.now
	return w, m
}

// keyInUse is that of the identity on disk.
func (w *env) keyInUse() string {
	g, err := decodeGeneration(w.dir[currentFile], "worker-1")
	if err != nil {
		w.t.Fatal(err)
	}
	return string(g.leaf.RawSubjectPublicKeyInfo)
}

func TestALostIdentityIsAskedForWithTheKeyThatItHad(t *testing.T) {
	w, m := lost(t)
	key := w.keyInUse()
	clear(w.requests) // an hour later
	w.until(m, Suspect, time.Minute)
	w.until(m, Active, time.Hour)
	if w.keyInUse() != key || w.made != 2 || w.currentUser(m) != us {
		t.Errorf("another key after %d requests, known as %s", w.made, w.currentUser(m))
	}
	w.until(m, Renewing, w.life)
	w.until(m, Active, time.Minute)
	if w.keyInUse() == key {
		t.Error("it was renewed with the same key")
	}
}

func TestALostIdentityWhoseRequestIsStillThereGetsAnotherKey(t *testing.T) {
	w, m := lost(t)
	key := w.keyInUse()
	w.until(m, Suspect, time.Minute)
	before := w.now
	w.until(m, Active, time.Hour)
	if w.keyInUse() == key || w.made != 2 || w.now.Sub(before) > 3*time.Minute {
		t.Errorf("the same key, or %d requests, or it took %v", w.made, w.now.Sub(before))
	}
}

func TestALostIdentityThatIsDeniedAsksWithAnotherKey(t *testing.T) {
	w, m := lost(t)
	key := w.keyInUse()
	clear(w.requests)
	w.approve = func(r *fakeRequest) { r.Status.Conditions = []condition{{Type: "Denied", Status: "True"}} }
	w.until(m, Suspect, time.Minute)
	w.advance(m, 4*time.Minute)
	wantOne(t, "denials on record", w.records(audit.RequestDenied), 1)
	w.approve = w.sign
	w.until(m, Active, time.Hour)
	if w.keyInUse() == key {
		t.Error("it asked with the same key")
	}
}

func TestAnIdentityThatHoldsAfterAllIsNotRenewedForIt(t *testing.T) {
	w, m := lost(t)
	clear(w.requests)
	w.approve = nil
	w.until(m, Suspect, time.Minute)
	w.until(m, Pending, time.Hour)
	w.revoked, w.approve = "", w.sign
	w.override = func(what string) int { // nobody looks at the request before the server knows us again
		if what == "GET request" {
			return http.StatusServiceUnavailable
		}
		return 0
	}
	w.until(m, Active, time.Hour)
	w.override = func(string) int { return 0 }
	w.advance(m, time.Hour)
	if _, ok := w.dir[pendingFile]; ok || w.made != 2 || w.records(audit.IdentityRenewed) > 0 {
		t.Errorf("a pending key: %v, %d requests, %d renewals", ok, w.made, w.records(audit.IdentityRenewed))
	}
}

// What reset sets aside can be put back until there is something better. Keys are not kept for longer.
func TestWhatWasSetAsideGoesOnceAnotherIdentityIsProven(t *testing.T) {
	w, m := active(t)
	w.until(m, Renewing, w.life)
	w.until(m, Active, time.Minute)
	aside, err := Reset(w)
	if err != nil || len(aside) != 2 {
		t.Fatalf("set aside %v, %v", aside, err)
	}
	w.files, w.approve = []bootstrap.Credential{w.file("another", "good")}, nil
	m = w.manager()
	w.advance(m, time.Hour)
	for _, name := range aside {
		if w.dir[name] == nil {
			t.Errorf("%s is gone before there is another identity", name)
		}
	}
	w.approve = w.sign
	w.until(m, Active, 2*time.Minute)
	for name := range w.dir {
		if strings.HasSuffix(name, ".reset") {
			t.Errorf("%s is left", name)
		}
	}
}

// A clock that was fast when the certificate came, and was put right: what was noted then is in the future.
func TestAnIdentityThatCameWhileTheClockWasFastIsRenewedInTime(t *testing.T) {
	for sentence, fast := range map[string]time.Duration{"hours": 5 * time.Hour,
		"more than the life": 30 * 24 * time.Hour} {
		for _, restart := range []bool{false, true} {
			w := newEnv(t)
			w.files, w.approve = []bootstrap.Credential{w.file("token", "good")}, func(r *fakeRequest) {
				// The signer's clock is right.
				w.now = wallclock.Set(w.now, -fast)
				w.sign(r)
				w.now = wallclock.Set(w.now, fast)
			}
			w.skew, w.now = fast, wallclock.Set(time.Now(), fast)
			m := w.manager()
			w.until(m, Active, time.Minute)
			w.advance(m, time.Minute)
			w.now, w.skew = wallclock.Set(w.now, -fast), 0
			w.approve = w.sign
			if restart {
				m = w.manager()
			}
			made := w.made
			for end := w.now.Add(3 * w.life); w.now.Before(end); {
				s := w.advance(m, 10*time.Minute)
				if s.State == NoCredential || w.now.After(s.Expires) {
					t.Fatalf("%s, restarted %v: %s: %s, expired %v ago", sentence, restart, s.State, s.Reason, w.now.Sub(s.Expires))
				}
			}
			if n := w.made - made; n < 3 || n > 6 {
				t.Errorf("%s, restarted %v: %d renewals in three lives", sentence, restart, n)
			}
		}
	}
}

// A whole new fleet asks at once. What it asks is there already, and may not be looked at.
func TestARequestThatCannotBeLookedAtIsAskedForEverMoreSeldom(t *testing.T) {
	for _, status := range []int{http.StatusInternalServerError, http.StatusTooManyRequests, http.StatusForbidden,
		http.StatusBadRequest} {
		for _, files := range []int{1, 2} {
			w := newEnv(t)
			w.approve = nil
			for i := range files {
				w.files = append(w.files, w.file(fmt.Sprint("token", i), "good"))
			}
			w.override = func(what string) int {
				if what == "GET request" {
					return status
				}
				return 0
			}
			m := w.manager()
			w.advance(m, 5*time.Minute)
			calls := w.calls
			w.advance(m, time.Hour)
			if n := w.calls - calls; n > 450 {
				t.Errorf("%d with %d files: %d calls in an hour", status, files, n)
			}
			w.override, w.approve = func(string) int { return 0 }, w.sign
			w.until(m, Active, 2*time.Minute)
			wantOne(t, "requests", w.made, 1)
		}
	}
}

// Every second look at the request fails: each success would begin anew with the shortest pause.
func TestARequestThatCanBeLookedAtNowAndThenIsAskedForSeldom(t *testing.T) {
	w := newEnv(t)
	w.files, w.approve = []bootstrap.Credential{w.file("token", "good")}, nil
	looks := 0
	w.override = func(what string) int {
		if looks++; what == "GET request" && looks%5 != 0 {
			return http.StatusInternalServerError
		}
		return 0
	}
	m := w.manager()
	w.advance(m, 10*time.Minute)
	calls := w.calls
	w.advance(m, time.Hour)
	if n := w.calls - calls; n > 700 {
		t.Errorf("%d calls in an hour", n)
	}
}

func TestAKeeperAsksLaterThanTheServerSaysAndNotAtThatVeryMoment(t *testing.T) {
	w := newEnv(t)
	w.files, w.busy = []bootstrap.Credential{w.file("token", "good")}, "60"
	w.override = func(string) int { return http.StatusTooManyRequests }
	m := w.manager()
	for range 3 {
		w.advance(m, time.Millisecond)
	}
	before := w.now
	w.advance(m, time.Millisecond)
	if wait := w.now.Sub(before); wait <= time.Minute {
		t.Errorf("it asks again after %v", wait)
	}
}

// whileRenewing brings a renewal of the env's identity to a stop, with a file that leads to where it would
// succeed.
func whileRenewing(t *testing.T, stop func(w *env), file func(w *env) bootstrap.Credential) (w *env, m *Manager) {
	t.Helper()
	w, m = active(t)
	stop(w)
	w.until(m, Renewing, w.life)
	w.advance(m, time.Minute)
	w.files = []bootstrap.Credential{file(w)}
	return w, m
}

// at is a file for this server with that CA.
func at(server string, ca []byte, token string) bootstrap.Credential {
	id := bootstrap.ID{Name: "20-file", Digest: plan.DigestOf([]byte("20 " + token))}
	return bootstrap.Credential{ID: id, Content: secret.New(kubeconfigs.Token(server, ca, token))}
}

func TestARenewalThatCannotSucceedHereGivesWayToAFile(t *testing.T) {
	for _, restart := range []bool{false, true} {
		var moved *env
		next := testpki.New("next", testpki.ECDSA)
		for sentence, c := range map[string]struct {
			stop func(w *env)
			file func(w *env) bootstrap.Credential
		}{
			"with another CA of the server": {func(w *env) { w.reissued(next); w.server.CloseClientConnections() },
				func(w *env) bootstrap.Credential { return at(w.server.URL, next.PEM(), "good") }},
			"for another cluster": {func(w *env) { w.server.Close() }, func(w *env) bootstrap.Credential {
				moved = newEnv(t)
				moved.tokens, moved.now = map[string]bool{"there": true}, w.now
				return at(moved.server.URL, moved.ca.PEM(), "there")
			}},
		} {
			t.Run(fmt.Sprintf("%s, restarted: %v", sentence, restart), func(t *testing.T) {
				w, m := whileRenewing(t, c.stop, c.file)
				if restart {
					m = w.manager()
					w.advance(m, time.Second)
				}
				for end := w.now.Add(time.Hour); m.attempt.fresh == nil && w.now.Before(end) && len(w.files) > 0; {
					w.advance(m, time.Second)
					if moved != nil {
						moved.now = w.now
					}
				}
				w.until(m, Active, time.Minute)
				w.advance(m, time.Minute)
				if got := w.currentUser(m); got != us || len(w.files) > 0 {
					t.Errorf("known as %q, %d files left", got, len(w.files))
				}
			})
		}
	}
}

func TestAMoveThatHangsDoesNotKeepADueRenewalFromAnotherTry(t *testing.T) {
	moved := newEnv(t)
	moved.tokens, moved.approve = map[string]bool{"there": true}, nil
	w, m := whileRenewing(t, func(w *env) { w.override = func(string) int { return http.StatusServiceUnavailable } },
		func(w *env) bootstrap.Credential {
			moved.now = w.now
			return at(moved.server.URL, moved.ca.PEM(), "there")
		})
	w.advance(m, time.Hour)
	if moved.made == 0 {
		t.Error("nobody asked at the other cluster")
	}
	w.override = func(string) int { return 0 }
	w.advance(m, 30*time.Minute)
	if w.records(audit.IdentityRenewed) != 1 || m.current.Cluster.Server != w.server.URL {
		t.Errorf("%d renewals, the server is %s", w.records(audit.IdentityRenewed), m.current.Cluster.Server)
	}
}

// The server dies between the issue of a certificate and its proof.
func TestAProofThatCannotBeHadEndsForAnotherFile(t *testing.T) {
	w, other := newEnv(t), newEnv(t)
	other.tokens, other.now = map[string]bool{"there": true}, w.now
	w.approve = func(r *fakeRequest) {
		w.sign(r)
		w.override = func(what string) int {
			if strings.HasPrefix(what, "POST") {
				return http.StatusServiceUnavailable
			}
			return 0
		}
	}
	w.files = []bootstrap.Credential{w.file("10-token", "good")}
	m := w.manager()
	w.until(m, Proving, time.Minute)
	w.files = append(w.files, at(other.server.URL, other.ca.PEM(), "there"))
	for end := w.now.Add(time.Hour); w.now.Before(end) && m.state != Active; {
		w.advance(m, time.Second)
		other.now = w.now
	}
	if m.current == nil || m.current.Cluster.Server != other.server.URL || w.currentUser(m) != us {
		t.Errorf("state %s: %s", m.state, m.reason)
	}
}

func TestOfTwoFilesThatLeadElsewhereTheSecondIsTriedToo(t *testing.T) {
	w, m := active(t)
	gone, moved := newEnv(t), newEnv(t)
	gone.server.Close()
	moved.tokens = map[string]bool{"there": true}
	w.files = []bootstrap.Credential{gone.file("20-gone", "good"), moved.file("30-moved", "there")}
	for end := w.now.Add(3 * time.Hour); w.now.Before(end) && m.current.Cluster.Server == w.server.URL; {
		w.advance(m, time.Second)
		moved.now = w.now
	}
	if m.current.Cluster.Server != moved.server.URL || w.currentUser(m) != us {
		t.Errorf("the server is %s, known as %s; state %s: %s", m.current.Cluster.Server, w.currentUser(m), m.state,
			m.reason)
	}
	wantOne(t, "requests there", moved.made, 1)
}

func TestADoubtThatNobodyAnswersDoesNotKeepAFileFromBeingUsed(t *testing.T) {
	w, m := active(t)
	w.rolled, m.health.probeAt = true, w.now
	w.until(m, Suspect, time.Minute)
	next := testpki.New("next", testpki.ECDSA)
	w.reissued(next)
	w.rolled = false
	w.override = func(string) int {
		w.rolled = m.attempt.fresh == nil // the new certificate is known, and the old one is not
		return 0
	}
	w.advance(m, time.Minute)
	w.files = []bootstrap.Credential{at(w.server.URL, next.PEM(), "good")}
	w.until(m, Active, 5*time.Minute)
	w.advance(m, time.Minute)
	if got := w.currentUser(m); w.made != 2 || len(w.files) > 0 {
		t.Errorf("known as %q after %d requests, %d files left", got, w.made, len(w.files))
	}
}
