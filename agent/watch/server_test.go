// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/clock"
)

// testTimeout is how long a test waits for something that must happen before it fails.
const testTimeout = 20 * time.Second

// receive takes the next value of c, or fails.
func receive[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(testTimeout):
		t.Fatalf("no %s in %v", what, testTimeout)
	}
	panic("unreachable")
}

// server is an API server, TLS and HTTP/2 included, whose every answer the test decides.
type server struct {
	*httptest.Server
	requests chan *request
}

// request is one that arrived and waits for the test's answer. A ResponseWriter belongs to the
// handler's goroutine, so that the answer is sent there as a function.
type request struct {
	*http.Request
	w    http.ResponseWriter
	do   chan func()
	gone chan struct{}
}

func (q *request) serve() {
	defer close(q.gone)
	for {
		select {
		case f, more := <-q.do:
			if !more {
				return
			}
			f()
		case <-q.Context().Done():
			return
		}
	}
}

// run has the handler do f, unless the client has gone.
func (q *request) run(f func()) {
	done := make(chan struct{})
	select {
	case q.do <- func() { defer close(done); f() }:
		<-done
	case <-q.gone:
	}
}

func newServer(t *testing.T) *server { return newServerAt(t, "127.0.0.1:0") }

func newServerAt(t *testing.T, address string) *server {
	t.Helper()
	s := &server{requests: make(chan *request, 16)}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := &request{Request: r, w: w, do: make(chan func()), gone: make(chan struct{})}
		s.requests <- q
		q.serve()
	}))
	_ = s.Listener.Close()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	s.Listener = l
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (s *server) next(t *testing.T) *request {
	t.Helper()
	return receive(t, s.requests, "request")
}

// send writes to the response at once.
func (q *request) send(parts ...[]byte) {
	q.run(func() {
		for _, p := range parts {
			_, _ = q.w.Write(p)
		}
		_ = http.NewResponseController(q.w).Flush()
	})
}

// open answers a watch with 200 and these events.
func (q *request) open(events ...[]byte) *request {
	q.send(events...)
	return q
}

// close ends the response, cleanly.
func (q *request) close() { close(q.do) }

// refuse answers as an API server does, with a Status.
func (q *request) refuse(code int, message string, header ...string) {
	q.run(func() {
		for i := 0; i < len(header); i += 2 {
			q.w.Header().Set(header[i], header[i+1])
		}
		q.w.WriteHeader(code)
	})
	q.send(fmt.Appendf(nil, `{"kind":"Status","status":"Failure","message":%q,"code":%d}`, message, code))
	q.close()
}

// fakeClock stands still until the test moves it.
type fakeClock struct {
	mu     sync.Mutex
	now    time.Time
	timers map[chan time.Time]time.Time
	armed  chan time.Duration
}

// clockStart is what a new clock shows.
var clockStart = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func newClock() *fakeClock {
	return &fakeClock{now: clockStart, timers: make(map[chan time.Time]time.Time), armed: make(chan time.Duration, 1000)}
}

func (c *fakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *fakeClock) After(d time.Duration) <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch := make(chan time.Time, 1)
	c.timers[ch] = c.now.Add(d)
	c.armed <- d
	return ch
}

// wait returns when somebody waits for d.
func (c *fakeClock) wait(t *testing.T, d time.Duration) {
	t.Helper()
	for {
		if got := receive(t, c.armed, "timer of "+d.String()); got == d {
			return
		}
	}
}

func (c *fakeClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	for ch, at := range c.timers {
		if !at.After(c.now) {
			delete(c.timers, ch)
			ch <- c.now
		}
	}
}

// pass waits until somebody waits for d, and lets it pass.
func (c *fakeClock) pass(t *testing.T, d time.Duration) {
	t.Helper()
	c.wait(t, d)
	c.advance(d)
}

// The durations of the tests; each is unlike the others, and Rand is always a half.
const (
	grace    = 7 * time.Second
	silence  = 3 * time.Minute
	lifetime = 50 * time.Minute
	spread   = 4 * time.Second
	maxDelay = 30 * time.Second

	afterNothing = soon / 2
	afterFirst   = spread / 2
)

// bench is a Watcher at work against a server.
type bench struct {
	*testing.T
	*server
	clock  *fakeClock
	w      *Watcher
	reopen chan struct{}
}

func start(t *testing.T) *bench {
	t.Helper()
	s := newServer(t)
	b := startWith(t, s, s.Client(), s.URL)
	b.reads(Connecting, "")
	return b
}

func startWith(t *testing.T, s *server, client *http.Client, base string) *bench {
	t.Helper()
	c := newClock()
	return startAt(t, s, client, base, c, c)
}

// startWithClock has the watcher see another clock than the one whose timers it sets.
func startWithClock(t *testing.T, s *server, c *fakeClock, seen clock.Clock) *bench {
	t.Helper()
	return startAt(t, s, s.Client(), s.URL, c, seen)
}

func startAt(t *testing.T, s *server, client *http.Client, base string, c *fakeClock, seen clock.Clock) *bench {
	t.Helper()
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	reopen := make(chan struct{})
	w := New(Options{Reopen: reopen, Client: client, Server: u, Group: "machineconfiguration.openshift.io", Version: "v1",
		Resource: "controllerconfigs", Name: objectName, Grace: grace, IdleTimeout: silence, Timeout: lifetime,
		RetryJitter: spread, RetryMax: maxDelay, Clock: seen, Rand: func() float64 { return 0.5 }})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { w.Run(ctx); close(ended) }()
	t.Cleanup(func() { cancel(); receive(t, ended, "end of Run") })
	return &bench{T: t, server: s, clock: c, w: w, reopen: reopen}
}

// settles takes readings until this one. Without a server that waits for the test, the first reading
// may be overtaken.
func (b *bench) settles(s State, reason string) {
	b.Helper()
	for {
		if r := receive(b.T, b.w.Readings(), string(s)); r.State == s && r.Reason == reason {
			return
		}
	}
}

// reads takes the next reading, which must be this one.
func (b *bench) reads(s State, reason string) Reading {
	b.Helper()
	r := receive(b.T, b.w.Readings(), "reading")
	if r.State != s || r.Reason != reason {
		b.Fatalf("reads %s (%s), want %s (%s)", r.State, r.Reason, s, reason)
	}
	return r
}

// follow brings the watcher to Following and returns the open request.
func (b *bench) follow(object []byte) *request {
	b.Helper()
	q := b.next(b.T).open(line("ADDED", object))
	b.reads(Following, "")
	return q
}

// again expects a next try after d.
func (b *bench) again(d time.Duration) *request {
	b.Helper()
	b.clock.pass(b.T, d)
	return b.next(b.T)
}

// quiet fails if there is a reading.
func (b *bench) quiet() {
	b.Helper()
	select {
	case r := <-b.w.Readings():
		b.Fatalf("reads %s (%s), want nothing new", r.State, r.Reason)
	default:
	}
}
