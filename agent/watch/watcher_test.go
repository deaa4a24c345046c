// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"bytes"
	"context"
	"io"
	"log"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/reply"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/wallclock"
)

const early = "the server ended the watch early"

func version(tb testing.TB, rv string, f fields) []byte {
	return bytes.Replace(object(tb, f), []byte(`"resourceVersion":"100"`), []byte(`"resourceVersion":"`+rv+`"`), 1)
}

func TestOneWatchWithoutResourceVersionIsAllThatIsAsked(t *testing.T) {
	b := start(t)
	q := b.next(t)
	if got, want := q.URL.Path, "/apis/machineconfiguration.openshift.io/v1/controllerconfigs"; got != want {
		t.Errorf("path %s, want %s", got, want)
	}
	if got, want := q.URL.RawQuery,
		"allowWatchBookmarks=true&fieldSelector=metadata.name%3Dmachine-config-controller&timeoutSeconds=3000&watch=true"; got != want {
		t.Errorf("query %s\n want %s", got, want)
	}
	if got := q.Header.Get("Accept"); got != "application/json" || q.ProtoMajor != 2 {
		t.Errorf("accepts %q over HTTP/%d", got, q.ProtoMajor)
	}
}

func TestTheFirstEventIsTheObjectAndLaterOnesFollow(t *testing.T) {
	b := start(t)
	q := b.next(t).open(line("ADDED", version(t, "1", fields{"rootCAData": []byte("one")})))
	r := b.reads(Following, "")
	if r.Object.ResourceVersion != "1" || string(r.Object.Fields[plan.RootCAData].Data) != "one" ||
		r.ServerDate.IsZero() || r.SeenAt.IsZero() {
		t.Errorf("read %+v", r)
	}
	q.send(line("BOOKMARK", []byte(`{"kind":"ControllerConfig","metadata":{"resourceVersion":"2"}}`)),
		line("MODIFIED", version(t, "3", fields{"rootCAData": []byte("two")})))
	if r = b.reads(Following, ""); r.Object.ResourceVersion != "3" ||
		string(r.Object.Fields[plan.RootCAData].Data) != "two" {
		t.Errorf("read %+v", r.Object)
	}
}

func TestAnEventOfAnotherObjectIsIgnored(t *testing.T) {
	b := start(t)
	other := bytes.Replace(object(t, nil), []byte(objectName), []byte("other"), 1)
	b.next(t).open(line("ADDED", other), line("DELETED", other), line("ADDED", object(t, nil)))
	if r := b.reads(Following, ""); r.Object.Name != objectName {
		t.Errorf("read %s", r.Object.Name)
	}
}

func TestAWatchThatLastedIsRenewedAtOnceAndSaysNothing(t *testing.T) {
	b := start(t)
	q := b.follow(object(t, nil))
	// Bookmarks came meanwhile; here the clock jumps, and the last one is just in time.
	b.clock.wait(t, grace)
	b.clock.advance(silence - time.Second)
	for range 20 {
		q.send(line("BOOKMARK", []byte("{}")), line("MODIFIED", version(t, b.clock.Now().String(), nil)))
		b.reads(Following, "")
		b.clock.advance(silence - time.Second)
	}
	q.close()
	b.again(afterNothing).open(line("ADDED", object(t, nil)))
	b.reads(Following, "") // an older version than the last, but not the same
	b.quiet()
}

func TestAReopenedWatchLosesNothingAndSaysNothing(t *testing.T) {
	b := start(t)
	b.follow(version(t, "1", nil))
	b.reopen <- struct{}{}
	q := b.next(t) // at once: the clock stands still
	q.open(line("ADDED", version(t, "2", nil)))
	if r := b.reads(Following, ""); r.Object.ResourceVersion != "2" {
		t.Errorf("read %+v", r.Object)
	}
	q.close()
	b.reads(Connecting, early)
	b.reopen <- struct{}{} // nor does a pause keep it
	b.next(t).open(line("ADDED", version(t, "2", nil)))
	b.reads(Following, "")
}

func TestAnUnchangedObjectAfterAReconnectIsNotNews(t *testing.T) {
	b := start(t)
	q := b.follow(object(t, nil))
	b.clock.wait(t, grace)
	q.send(line("ADDED", object(t, nil)), line("ERROR",
		[]byte(`{"kind":"Status","code":410,"reason":"Expired","message":"too old"}`)))
	before := b.reads(Connecting, "the server ended the watch: 410 Expired: too old").Object
	b.again(afterNothing).open(line("ADDED", object(t, nil)))
	if r := b.reads(Following, ""); r.Object != before {
		t.Error("the object counts as new")
	}
}

func TestErrorEventsRestartAtOnceButNotInAHotLoop(t *testing.T) {
	b := start(t)
	gone := line("ERROR",
		[]byte(`{"kind":"Status","code":410,"reason":"Expired","message":"too old resource version: 1 (2)"}`))
	b.next(t).open(gone)
	b.reads(Connecting, "the server ended the watch: 410 Expired: too old resource version: 1 (2)")
	b.again(afterNothing).open(gone)
	b.again(2 * afterFirst).open(gone)
	b.again(4 * afterFirst).open(gone)
	b.again(maxDelay / 2).open(gone)
	b.again(maxDelay / 2)
}

func TestAWatchThatHeldMakesTheNextFailureAFirstOne(t *testing.T) {
	b := start(t)
	b.next(t).refuse(403, "RBAC is not ready")
	b.reads(Forbidden, "the server answered 403 Forbidden: RBAC is not ready")
	b.again(afterFirst).refuse(403, "RBAC is not ready")
	q := b.again(2 * afterFirst).open(line("ADDED", object(t, nil)))
	b.reads(Following, "")
	b.clock.wait(t, grace)
	b.clock.advance(spread)
	q.close()
	b.reads(Connecting, early)
	b.again(afterFirst).open(line("ADDED", object(t, nil)))
	b.reads(Following, "")
}

func TestAnswersAreStatesWithANextTry(t *testing.T) {
	for sentence, c := range map[string]struct {
		code   int
		header []string
		state  State
		reason string
		delay  time.Duration
	}{
		"401 is not accepted": {401, nil, Unauthorized, "the server answered 401 Unauthorized: why",
			afterFirst},
		"403 is retried": {403, nil, Forbidden, "the server answered 403 Forbidden: why", afterFirst},
		"404 is a missing CRD": {404, nil, NotFound,
			"the server has no resource controllerconfigs.machineconfiguration.openshift.io/v1: the CRD is missing", afterFirst},
		"429 waits as told": {429, []string{"Retry-After", "60"}, Overloaded,
			"the server answered 429 Too Many Requests: why", time.Minute + afterFirst},
		"503 waits until the date told": {503, []string{"Retry-After", "Sun, 01 Mar 2026 12:02:00 GMT"}, Overloaded,
			"the server answered 503 Service Unavailable: why", 2*time.Minute + afterFirst},
		"429 without advice backs off": {429, nil, Overloaded, "the server answered 429 Too Many Requests: why",
			afterFirst},
		"a wait of a year is not believed": {429, []string{"Retry-After", "31536000"}, Overloaded,
			"the server answered 429 Too Many Requests: why", reply.MaxWait + afterFirst},
		"a wait that is no number is ignored": {503, []string{"Retry-After", "soon"}, Overloaded,
			"the server answered 503 Service Unavailable: why", afterFirst},
		"a wait of less than our own, as well": {429, []string{"Retry-After", "1"}, Overloaded,
			"the server answered 429 Too Many Requests: why", time.Second + afterFirst},
		"500 is no API server": {500, nil, Unreachable, "the server answered 500 Internal Server Error: why", afterFirst},
	} {
		t.Run(sentence, func(t *testing.T) {
			b := start(t)
			b.next(t).refuse(c.code, "why", c.header...)
			b.reads(c.state, c.reason)
			b.again(c.delay).open(line("ADDED", object(t, nil)))
			b.reads(Following, "")
		})
	}
}

func TestTheSameFailureAgainIsNotNews(t *testing.T) {
	b := start(t)
	b.next(t).refuse(403, "no")
	b.reads(Forbidden, "the server answered 403 Forbidden: no")
	b.again(afterFirst).refuse(403, "no")
	b.clock.wait(t, 2*afterFirst)
	b.quiet()
}

func TestMessagesOfTheServerAreCutAndEscaped(t *testing.T) {
	b := start(t)
	b.next(t).refuse(403, "\x1b[31m"+strings.Repeat("x", 5000))
	r := receive(t, b.w.Readings(), "reading")
	if len(r.Reason) > maxText || strings.Contains(r.Reason, "\x1b") {
		t.Errorf("reason is %q", r.Reason)
	}
}

func TestASilentWatchIsSettledByOneList(t *testing.T) {
	const empty = `{"kind":"ControllerConfigList","metadata":{"resourceVersion":"7"},"items":[]}`
	b := start(t)
	q := b.next(t).open()
	b.clock.pass(t, grace)
	list := b.next(t)
	if got, want := list.URL.RawQuery, "fieldSelector=metadata.name%3Dmachine-config-controller"; got != want {
		t.Errorf("query %s, want %s", got, want)
	}
	list.send([]byte(empty))
	list.close()
	b.reads(NotFound, "there is no controllerconfigs.machineconfiguration.openshift.io named machine-config-controller")
	q.send(line("ADDED", object(t, nil)))
	b.reads(Following, "")
}

func TestAListThatFindsTheObjectIsBelieved(t *testing.T) {
	b := start(t)
	b.next(t).open()
	b.clock.pass(t, grace)
	list := b.next(t)
	list.send([]byte(`{"items":[{"metadata":{"name":"other"}},`), object(t, nil), []byte(`]}`))
	list.close()
	if r := b.reads(Following, ""); r.Object.Name != objectName {
		t.Errorf("read %q", r.Object.Name)
	}
}

func TestAListThatFailsIsRepeatedWhileTheWatchIsSilent(t *testing.T) {
	b := start(t)
	q := b.next(t).open()
	b.clock.pass(t, grace)
	b.next(t).refuse(403, "no list for you")
	b.reads(Connecting, "the watch is open without the object, and a list failed: the server answered 403 Forbidden: no "+
		"list for you")
	b.clock.pass(t, maxDelay)
	list := b.next(t)
	list.send([]byte(`[]`))
	list.close()
	b.reads(Connecting, "the watch is open without the object, and a list failed: the answer is not a list")
	q.send(line("ADDED", object(t, nil)))
	b.reads(Following, "")
}

func TestAListIsNotHeardOnceTheWatchHasSpoken(t *testing.T) {
	w := New(Options{Name: objectName})
	s := &session{Watcher: w}
	s.handle(sessionEvent{object: &Object{Name: objectName}})
	if r := receive(t, w.Readings(), "reading"); r.State != Following {
		t.Fatalf("reads %s", r.State)
	}
	for _, late := range []sessionEvent{{}, {result: &sessionResult{reason: "x"}}, {object: &Object{Name: objectName,
		ResourceVersion: "0"}}} {
		s.handleList(late)
		(&bench{T: t, w: w}).quiet()
	}
}

func TestADeletedObjectStaysTheLastGoodOne(t *testing.T) {
	b := start(t)
	q := b.follow(object(t, fields{"rootCAData": []byte("one")}))
	q.send(line("DELETED", object(t, nil)))
	if r := b.reads(NotFound, objectName+" was deleted"); string(r.Object.Fields[plan.RootCAData].Data) != "one" {
		t.Errorf("last good is %+v", r.Object)
	}
	q.send(line("ADDED", object(t, nil)))
	b.reads(Following, "")
}

func TestStreamsThatBreakAreLeft(t *testing.T) {
	a := line("ADDED", object(t, nil))
	for sentence, c := range map[string]struct {
		send   []byte
		reason string
	}{
		"in the middle of an event": {a[:len(a)/2], "the watch broke: the stream was cut off in the middle of an event"},
		"with garbage":              {[]byte("<html>"), "the watch broke: not JSON at byte 0"},
		"with a huge value": {slab(`{"type":"ADDED","object":{"spec":{"rootCAData":"`, 9<<20),
			"the watch broke: a value of more than 4194304 bytes"},
	} {
		t.Run(sentence, func(t *testing.T) {
			b := start(t)
			q := b.next(t).open()
			go func() { q.send(c.send); q.close() }()
			b.reads(Unreachable, c.reason)
			b.again(afterFirst)
		})
	}
}

func slab(begin string, n int) []byte { return append([]byte(begin), bytes.Repeat([]byte("A"), n)...) }

func TestSilenceEndsAWatchAndBytesKeepItAlive(t *testing.T) {
	b := start(t)
	q := b.follow(object(t, nil))
	b.clock.wait(t, grace)
	b.clock.advance(2 * time.Minute)
	q.send(line("BOOKMARK", []byte("{}")), line("MODIFIED", version(t, "101", nil)))
	b.reads(Following, "")
	b.clock.advance(time.Minute)
	b.clock.wait(t, 2*time.Minute) // what is left of the three since the last byte
	b.clock.advance(2 * time.Minute)
	b.reads(Unreachable, "the server sent nothing for 3m0s")
	receive(t, q.gone, "end of the silent request")
	b.again(afterFirst).open(line("ADDED", version(t, "101", nil)))
	b.reads(Following, "")
}

func TestAServerThatNeverAnswersIsLeft(t *testing.T) {
	b := start(t)
	b.next(t)
	b.clock.pass(t, silence)
	b.reads(Unreachable, "the server sent nothing for 3m0s")
	b.again(afterFirst).open(line("ADDED", object(t, nil)))
	b.reads(Following, "")
}

func TestAGracefulShutdownAndARestartAreSurvived(t *testing.T) {
	b := start(t)
	b.Config.ErrorLog = log.New(io.Discard, "", 0)
	q := b.follow(object(t, nil))
	address := b.Listener.Addr().String()
	down := make(chan error, 1)
	go func() { down <- b.Config.Shutdown(context.Background()) }()
	q.close()
	if err := receive(t, down, "shutdown"); err != nil {
		t.Fatal(err)
	}
	b.clock.pass(t, afterFirst)
	b.settles(Unreachable, "dial "+address+": connect: connection refused")
	b.server = newServerAt(t, address)
	b.again(2 * afterFirst).open(line("ADDED", version(t, "200", nil)))
	b.reads(Following, "")
}

func TestARefusedConnectionAtTheStartIsAState(t *testing.T) {
	s := newServer(t)
	address := s.Listener.Addr().String()
	s.Close()
	b := startWith(t, s, s.Client(), "https://"+address)
	b.settles(Unreachable, "dial "+address+": connect: connection refused")
	b.server = newServerAt(t, address)
	b.again(afterFirst).open(line("ADDED", object(t, nil)))
	b.reads(Following, "")
}

func TestAServerThatCannotBeVerifiedIsUnreachable(t *testing.T) {
	s := newServer(t)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	b := startWith(t, s, &http.Client{Transport: &http.Transport{}}, s.URL)
	b.settles(Unreachable, "tls: failed to verify certificate: x509: certificate signed by unknown authority")
	b.clock.wait(t, afterFirst)
}

func TestASlowConsumerGetsTheNewest(t *testing.T) {
	b := start(t)
	q := b.next(t).open(line("ADDED", version(t, "1", nil)), line("MODIFIED", version(t, "2", nil)),
		line("MODIFIED", version(t, "3", nil)))
	b.clock.wait(t, grace)
	q.close()
	b.clock.wait(t, afterFirst) // everything has been read by now
	if r := b.reads(Connecting, early); r.Object.ResourceVersion != "3" {
		t.Errorf("read version %s", r.Object.ResourceVersion)
	}
	b.quiet()
}

// list answers with the one object.
func (q *request) list(object []byte) {
	q.send([]byte(`{"items":[`), object, []byte(`]}`))
	q.close()
}

// back brings a watcher that has read version 200 to a server that shows version 100, and returns that watch
// and the list that asks whether this is so.
func back(t *testing.T) (b *bench, watch, list *request) {
	t.Helper()
	b = start(t)
	b.follow(version(t, "200", fields{"rootCAData": []byte("new")}))
	b.reopen <- struct{}{}
	watch = b.next(t).open(line("ADDED", version(t, "100", fields{"rootCAData": []byte("old")})))
	list = b.next(t) // at once: the clock stands still
	if got, want := list.URL.RawQuery, "fieldSelector=metadata.name%3Dmachine-config-controller"; got != want {
		t.Errorf("query %s, want %s", got, want)
	}
	b.quiet()
	return b, watch, list
}

func TestAServerThatIsBehindTakesNothingBack(t *testing.T) {
	b, watch, list := back(t)
	list.list(version(t, "200", fields{"rootCAData": []byte("new")}))
	watch.send(line("MODIFIED", version(t, "150", fields{"rootCAData": []byte("between")})),
		line("MODIFIED", version(t, "200", fields{"rootCAData": []byte("new")})),
		line("MODIFIED", version(t, "1000", fields{"rootCAData": []byte("newest")})))
	if r := b.reads(Following, ""); r.Object.ResourceVersion != "1000" {
		t.Errorf("read version %s", r.Object.ResourceVersion)
	}
	select {
	case q := <-b.requests:
		t.Errorf("asked once more: %s", q.URL)
	default:
	}
}

func TestAnOlderVersionIsBelievedFromAList(t *testing.T) { // etcd was restored from a backup
	b, watch, list := back(t)
	list.list(version(t, "100", fields{"rootCAData": []byte("old")}))
	if r := b.reads(Following, ""); r.Object.ResourceVersion != "100" ||
		string(r.Object.Fields[plan.RootCAData].Data) != "old" {
		t.Errorf("read %+v", r.Object)
	}
	watch.send(line("MODIFIED", version(t, "101", nil)))
	if r := b.reads(Following, ""); r.Object.ResourceVersion != "101" {
		t.Errorf("read version %s", r.Object.ResourceVersion)
	}
}

func TestAServerThatIsBehindAndCannotListIsSaidToBe(t *testing.T) {
	b, _, list := back(t)
	list.refuse(500, "etcdserver: request timed out")
	r := b.reads(Connecting, "the server shows version 100 where 200 was read before, and a list failed: the server "+
		"answered 500 Internal Server Error: etcdserver: request timed out")
	if r.Object.ResourceVersion != "200" {
		t.Errorf("read version %s", r.Object.ResourceVersion)
	}
	b.again(maxDelay).list(version(t, "200", fields{"rootCAData": []byte("new")}))
	b.reads(Following, "")
}

func TestAnObjectThatWasMadeAnewIsTakenUnlessItIsOlder(t *testing.T) {
	other := func(rv string) []byte {
		return bytes.Replace(version(t, rv, nil), []byte(`"uid":"`), []byte(`"uid":"other-`), 1)
	}
	b := start(t)
	q := b.follow(version(t, "200", nil))
	q.send(line("DELETED", version(t, "200", nil)), line("ADDED", other("201")))
	for r := receive(t, b.w.Readings(), "reading"); r.Object.ResourceVersion != "201"; r = receive(t, b.w.Readings(),
		"reading") {
		if r.State != NotFound {
			t.Fatalf("%s, version %s", r.State, r.Object.ResourceVersion)
		}
	}
	b.reopen <- struct{}{}
	q = b.next(t).open(line("ADDED", version(t, "200", nil)))
	b.next(t).list(other("201"))
	b.quiet()
	q.send(line("MODIFIED", other("202")))
	if r := b.reads(Following, ""); r.Object.ResourceVersion != "202" {
		t.Errorf("read version %s", r.Object.ResourceVersion)
	}
}

func TestVersionsAreComparedAsNumbers(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"9", "10", true}, {"10", "9", false}, {"10", "10", false}, {"100", "99", false},
		{"99999999999999999999", "100000000000000000000", true},
		{"", "1", false}, {"1", "", false}, {"a", "b", false}, {"1", "b", false}, {"-1", "1", false}, {"01", "1", false},
	} {
		if got := older(c.a, c.b); got != c.want {
			t.Errorf("%q before %q: %v", c.a, c.b, got)
		}
	}
}

func TestTwoWhoWereToldTheSameWaitComeBackApart(t *testing.T) {
	var delays []time.Duration
	for _, random := range []float64{0.1, 0.9} {
		w := New(Options{RetryJitter: spread, Rand: func() float64 { return random }})
		delays = append(delays, w.delay(sessionResult{after: time.Minute}))
	}
	if delays[0] < time.Minute || delays[1]-delays[0] < spread/2 {
		t.Errorf("they wait %v", delays)
	}
}

func TestAServerThatSaysWhenToComeBackIsNotLeftAloneForLong(t *testing.T) {
	w := New(Options{RetryJitter: 5 * time.Second, RetryMax: 30 * time.Second, Rand: func() float64 { return 1 }})
	for i, c := range []struct{ after, want time.Duration }{{0, 5}, {0, 10}, {0, 20}, {0, 30}, {1, 11}, {60, 70}, {0, 30}} {
		if got := w.delay(sessionResult{after: c.after * time.Second}); got != c.want*time.Second {
			t.Errorf("try %d: %v, want %v", i, got, c.want*time.Second)
		}
	}
	w = New(Options{RetryJitter: 5 * time.Second, RetryMax: 30 * time.Second, Rand: func() float64 { return 1 }})
	if got := w.delay(sessionResult{after: time.Second}); got != 6*time.Second {
		t.Errorf("the first time: %v", got)
	}
}

// wallClock is a clock as the system's, whose wall part may be set.
type wallClock struct {
	*fakeClock
	began time.Time // with a monotonic part
	by    atomic.Int64
}

func (c *wallClock) Now() time.Time {
	return wallclock.Set(c.began.Add(c.fakeClock.Now().Sub(clockStart)), time.Duration(c.by.Load()))
}

func TestSilenceIsNoticedWhateverTheWallClockIsSetTo(t *testing.T) {
	for _, by := range []time.Duration{-10 * time.Hour, 10 * time.Hour} {
		t.Run(by.String(), func(t *testing.T) {
			c := &wallClock{fakeClock: newClock(), began: time.Now()}
			b := startWithClock(t, newServer(t), c.fakeClock, c)
			b.reads(Connecting, "")
			q := b.follow(version(t, "1", nil))
			b.clock.wait(t, grace)
			b.clock.advance(silence / 3)
			q.send(line("MODIFIED", version(t, "2", nil)))
			b.reads(Following, "")
			c.by.Store(int64(by))
			b.clock.advance(silence - silence/3) // and somebody looks how long it has been silent
			b.clock.pass(t, silence/3)
			b.reads(Unreachable, "the server sent nothing for 3m0s")
		})
	}
}
