// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/agenttest"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
)

const (
	kindPath = "/apis/node-cert-agent.io/v1alpha1/nodecertificatestates"
	ownPath  = kindPath + "/n1/status"
)

// board is an API server that takes state objects and answers as it is told.
type board struct {
	t       *testing.T
	clock   *agenttest.Clock
	answers chan int
	// dry is the answer to a write for another node, which is a dry run.
	dry atomic.Int64
	// there is the object that the server has, as JSON; none if it is empty. made and read count how often it was.
	there   atomic.Value
	made    atomic.Int64
	read    atomic.Int64
	last    atomic.Value
	got     chan string
	trouble chan error
	object  *report.Object
}

// newBoard has an object at work. Statuses were published before it could be written.
func newBoard(t *testing.T, before ...report.Status) *board { return newSpreadBoard(t, nil, before...) }

// newSpreadBoard is newBoard with an object whose changes wait for so long.
func newSpreadBoard(t *testing.T, spread func() time.Duration, before ...report.Status) *board {
	b := &board{t: t, clock: agenttest.NewClock(), answers: make(chan int, 10), got: make(chan string, 10),
		trouble: make(chan error, 10)}
	b.dry.Store(http.StatusUnprocessableEntity)
	b.there.Store("")
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if b.besides(w, r, body) {
			return
		}
		b.last.Store(body)
		var o struct {
			Status struct{ State, Heartbeat string }
		}
		_ = json.Unmarshal(body, &o)
		b.got <- fmt.Sprint(r.Method, " ", r.URL, " ", r.Header.Get("Content-Type"), " ", o.Status.State, " ",
			o.Status.Heartbeat)
		w.WriteHeader(<-b.answers)
		_, _ = io.WriteString(w, `{"message":"no\nway"}`)
	}))
	t.Cleanup(srv.Close)
	t.Cleanup(func() { close(b.answers) })
	u, _ := url.Parse(srv.URL)
	b.object = report.NewObject(report.ObjectOptions{Node: "n1", Least: 10 * time.Second, Heartbeat: time.Hour,
		Spread: spread, After: b.clock.After, Now: b.clock.Now, Trouble: func(err error) { b.trouble <- err }})
	for _, s := range before {
		b.object.Publish(s)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); b.object.Run(ctx, srv.Client(), u) }()
	t.Cleanup(func() { cancel(); <-ended })
	return b
}

// besides answers everything but the write of a status.
func (b *board) besides(w http.ResponseWriter, r *http.Request, body []byte) bool {
	there := b.there.Load().(string)
	dry := r.URL.Query().Get("dryRun") != ""
	if r.URL.Path == ownPath && dry {
		b.read.Add(1)
	}
	switch {
	case r.Method == http.MethodPost && r.URL.Path == kindPath && dry:
		w.WriteHeader(int(b.dry.Load()))
	case r.Method == http.MethodPost && r.URL.Path == kindPath:
		if strings.Contains(string(body), "status") || !strings.Contains(string(body), `"n1"`) {
			b.t.Errorf("made with %s", body)
		}
		b.made.Add(1)
		b.there.Store(`{}`)
		w.WriteHeader(http.StatusCreated)
	case r.URL.Path == ownPath && there == "":
		w.WriteHeader(http.StatusNotFound)
	case r.URL.Path == ownPath && dry:
		if strings.Contains(string(body), "status") || r.URL.Query().Get("fieldManager") == "node-cert-agent" {
			b.t.Errorf("read by %s with %s, which takes away what is there", r.URL, body)
		}
		_, _ = io.WriteString(w, there)
	default:
		return false
	}
	return true
}

// condition is what was sent last of the condition of that type: its status and time.
func (b *board) condition(of string) string {
	b.t.Helper()
	var o struct {
		Status struct {
			Conditions []struct{ Type, Status, LastTransitionTime string }
		}
	}
	if err := json.Unmarshal(b.last.Load().([]byte), &o); err != nil {
		b.t.Fatal(err)
	}
	for _, c := range o.Status.Conditions {
		if c.Type == of {
			return c.Status + " " + c.LastTransitionTime
		}
	}
	return ""
}

// wants answers the next request, and checks it.
func (b *board) wants(state string, code int) {
	b.t.Helper()
	b.answers <- code
	select {
	case got := <-b.got:
		want := "PATCH " + ownPath + "?fieldManager=node-cert-agent&force=true application/apply-patch+yaml " +
			state + " " + b.clock.Now().Format(time.RFC3339)
		if got != want {
			b.t.Fatalf("sent %s\nwant %s", got, want)
		}
	case <-time.After(10 * time.Second):
		b.t.Fatalf("%s was not sent", state)
	}
}

// pass lets time pass until the object waits for something else than a timer of the past.
func (b *board) pass(d time.Duration) {
	b.t.Helper()
	b.clock.AwaitTimers(2)
	b.clock.Move(d)
}

func (b *board) quiet() {
	b.t.Helper()
	select {
	case got := <-b.got:
		b.t.Errorf("sent %s", got)
	case err := <-b.trouble:
		b.t.Errorf("told %v", err)
	default:
	}
}

func TestTheStateObjectIsWrittenOnChangeAndAtTheHeartbeat(t *testing.T) {
	b := newBoard(t)
	following := report.Status{State: "following", ControllerConfig: plan.ControllerConfig{ResourceVersion: "1"}}
	b.object.Publish(following)
	b.wants("following", 200)
	b.pass(10 * time.Second)
	b.object.Publish(following)
	b.clock.AwaitTimers(1)
	b.quiet()
	b.object.Publish(report.Status{State: "unreachable"})
	b.wants("unreachable", 200)
	b.pass(10 * time.Second)
	b.clock.AwaitTimers(1)
	b.clock.Move(66 * time.Minute)
	b.wants("unreachable", 200)
}

func TestAChangeWaitsSoThatAFleetDoesNotReportAtOnce(t *testing.T) {
	b := newSpreadBoard(t, func() time.Duration { return 4 * time.Second })
	b.object.Publish(report.Status{State: "a"})
	b.wants("a", 200) // the first report of a process does not wait
	b.pass(10 * time.Second)
	b.object.Publish(report.Status{State: "b"})
	b.clock.AwaitTimers(2)
	b.quiet()
	b.object.Publish(report.Status{State: "c"})
	b.clock.Move(4 * time.Second)
	b.wants("c", 200)
}

func TestOfWhatWasPublishedBeforeItCouldBeWrittenTheNewestIs(t *testing.T) {
	b := newBoard(t, report.Status{State: "a"}, report.Status{State: "b"})
	b.wants("b", 200)
	b.pass(10 * time.Second)
	b.clock.AwaitTimers(1)
	b.quiet()
}

func TestAStatusIsPublishedOnTheHostAndInTheCluster(t *testing.T) {
	b := newBoard(t)
	var files []string
	write := func(name string, _ []byte) error { files = append(files, name); return nil }
	if err := (report.Fanout{Reporter: report.New(write, false),
		Object: b.object}).Publish(report.Status{State: "a"}); err != nil {
		t.Error(err)
	}
	b.wants("a", 200)
	if want := []string{report.StatusFile, report.MetricsFile}; !slices.Equal(files, want) {
		t.Errorf("written were %v, want %v", files, want)
	}
}

func TestChangesInQuickSuccessionAreOneWrite(t *testing.T) {
	b := newBoard(t)
	b.object.Publish(report.Status{State: "a"})
	b.wants("a", 200)
	b.clock.AwaitTimers(2)
	for _, s := range []report.SourceState{"b", "c", "d"} {
		b.object.Publish(report.Status{State: s})
	}
	b.quiet()
	b.clock.Move(10 * time.Second)
	b.wants("d", 200)
}

func TestARefusedStateObjectIsToldOnceAndTriedAgain(t *testing.T) {
	b := newBoard(t)
	b.object.Publish(report.Status{State: "a"})
	b.wants("a", 403)
	if err := <-b.trouble; err.Error() != `state object: the server answered 403 no\nway` {
		t.Errorf("told %v", err)
	}
	b.pass(20 * time.Second)
	b.wants("a", 403)
	b.pass(40 * time.Second)
	b.wants("a", 200)
	b.clock.AwaitTimers(2)
	b.quiet()
}

func TestAClusterWithoutTheKindIsNoErrorAndCostsOneRequest(t *testing.T) {
	b := newBoard(t)
	b.dry.Store(http.StatusNotFound)
	b.object.Publish(report.Status{State: "a"})
	b.pass(10 * time.Second)
	b.clock.AwaitTimers(1)
	b.quiet()
	b.dry.Store(http.StatusUnprocessableEntity) // it has come
	b.object.Publish(report.Status{State: "b"})
	b.wants("b", 200)
}

func TestWhereAnyNodeCouldWriteForAnyOtherNothingIsWritten(t *testing.T) {
	b := newBoard(t)
	b.dry.Store(http.StatusCreated)
	b.object.Publish(report.Status{State: "a"})
	if err := <-b.trouble; !strings.Contains(err.Error(), "the policy node-cert-agent-states is missing") {
		t.Errorf("told %v", err)
	}
	b.pass(20 * time.Second)
	b.clock.AwaitTimers(2)
	b.quiet()
	b.dry.Store(http.StatusUnprocessableEntity) // the policy has come
	b.clock.Move(40 * time.Second)
	b.wants("a", 200)
}

func TestWithoutTheRightToWriteThatIsWhatIsTold(t *testing.T) {
	b := newBoard(t)
	b.dry.Store(http.StatusForbidden)
	b.object.Publish(report.Status{State: "a"})
	b.wants("a", 403)
	if err := <-b.trouble; !strings.Contains(err.Error(), "the server answered 403") {
		t.Errorf("told %v", err)
	}
}

// outage is what a node that cannot reach its server goes through: n writes fail.
func (b *board) outage(n int) {
	b.t.Helper()
	b.object.Publish(report.Status{State: "unreachable"})
	for i := range n {
		b.wants("unreachable", 503)
		if i == 0 {
			<-b.trouble // told once
		}
		b.clock.AwaitTimers(2)
		if i < n-1 {
			b.clock.Move(5 * time.Minute)
		}
	}
}

func TestTheStateObjectIsMadeOnceAndAgainAfterItWasDeleted(t *testing.T) {
	b := newBoard(t)
	b.object.Publish(report.Status{State: "a"})
	b.wants("a", 200)
	b.pass(10 * time.Second)
	b.object.Publish(report.Status{State: "b"})
	b.wants("b", 200)
	if made, read := b.made.Load(), b.read.Load(); made != 1 || read != 1 {
		t.Errorf("it was made %d times, and read %d times", made, read)
	}
	b.pass(10 * time.Second)
	b.there.Store("")
	b.object.Publish(report.Status{State: "c"})
	b.wants("c", 200)
	if got := b.made.Load(); got != 2 {
		t.Errorf("it was made %d times", got)
	}
}

func TestAConditionKeepsItsTimeOverAStartUntilItChanges(t *testing.T) {
	b := newBoard(t)
	const before = "2020-01-02T03:04:05Z"
	b.there.Store(`{"status":{"state":"x","conditions":[{"type":"Synced","status":"True","lastTransitionTime":"` + before +
		`"},{"type":"Paused","status":"True","lastTransitionTime":"` + before + `"}]}}`)
	now := b.clock.Now().Format(time.RFC3339)
	b.object.Publish(report.Status{State: report.Following})
	b.wants("following", 200)
	for of, want := range map[string]string{"Synced": "True " + before, "Paused": "False " + now,
		"IdentityValid": "True " + now} {
		if got := b.condition(of); got != want {
			t.Errorf("%s is %s, want %s", of, got, want)
		}
	}
	b.pass(10 * time.Second)
	b.object.Publish(report.Status{State: report.Following, Error: "x"})
	b.wants("following", 200)
	if got, want := b.condition("Synced"), "False "+b.clock.Now().Format(time.RFC3339); got != want {
		t.Errorf("Synced is %s, want %s", got, want)
	}
	if got, want := b.condition("Paused"), "False "+now; got != want {
		t.Errorf("Paused is %s, want %s", got, want)
	}
	if b.made.Load() != 0 {
		t.Error("what was there was made")
	}
}

func TestHoweverLongTheServerIsAwayTheStateObjectIsTriedEveryFiveMinutes(t *testing.T) {
	b := newBoard(t)
	b.outage(15)
}

func TestWhenTheWatchReturnsTheStateObjectIsWrittenAtOnce(t *testing.T) {
	b := newBoard(t)
	b.outage(8)
	b.clock.Move(10 * time.Second)
	b.quiet()
	b.object.Publish(report.Status{State: "following"})
	b.wants("following", 200)
}

func TestAFleetDoesNotReportAtOnceWhenItsServerIsBack(t *testing.T) {
	b := newSpreadBoard(t, func() time.Duration { return 4 * time.Second })
	b.outage(8)
	b.clock.Move(10 * time.Second)
	asked := b.clock.Asked()
	b.object.Publish(report.Status{State: "following"})
	b.clock.AwaitAsked(asked + 1)
	b.quiet()
	b.clock.Move(4 * time.Second)
	b.wants("following", 200)
}

func TestWhenTheIdentityIsSwappedTheStateObjectIsWrittenAtOnce(t *testing.T) {
	b := newBoard(t)
	b.outage(8)
	b.clock.Move(10 * time.Second)
	b.object.Publish(report.Status{State: "unreachable", Error: "x"})
	b.quiet() // that alone says nothing of the server
	b.object.Publish(report.Status{State: "unreachable", Error: "x",
		Identity: &report.Identity{Serial: "0a", State: "active"}})
	b.wants("unreachable", 200)
	b.pass(10 * time.Second)
	b.clock.AwaitTimers(1)
	b.quiet() // one write held both
}

func TestAStateThatFlapsWhileTheServerIsAwayIsWrittenNoMoreOftenThanOtherwise(t *testing.T) {
	b := newBoard(t)
	b.outage(8)
	asked := b.clock.Asked()
	b.object.Publish(report.Status{State: "following"})
	b.clock.AwaitAsked(asked + 1)
	b.object.Publish(report.Status{State: "unreachable"})
	b.clock.AwaitTimers(2)
	b.quiet()
	b.clock.Move(10 * time.Second)
	b.wants("unreachable", 503)
}
