// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// lines is a log that tests read while the server writes.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// echo answers with what it was asked, once it may.
type echo struct {
	begun chan struct{}
	goOn  chan struct{}
	fatal error
}

func (e *echo) Answer(_ context.Context, who Peer, text, content []byte) Reply {
	if e.begun != nil {
		e.begun <- struct{}{}
		<-e.goOn
	}
	if string(text) == `"no"` {
		return Reply{Value: "refused", Refused: "asked with no\n" + strings.Repeat("x", 1000)}
	}
	return Reply{Value: fmt.Sprintf("%d: %s", who.UID, text), Contents: [][]byte{content}, Fatal: e.fatal}
}

func (e *echo) Refuse(reason string) any { return reason }

type serving struct {
	socket string
	log    *lines
	stop   context.CancelFunc
	done   chan error
}

func listen(t *testing.T) *net.UnixListener {
	t.Helper()
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	return ln
}

func serve(t *testing.T, s Server) *serving {
	t.Helper()
	return serveOn(t, listen(t), s)
}

func serveOn(t *testing.T, ln *net.UnixListener, s Server) *serving {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out := &serving{ln.Addr().String(), new(lines), cancel, make(chan error, 1)}
	s.Name, s.Log, s.Requests, s.Replies = "tester", out.log, limits, Limits{Text: 4096, Content: 64, Values: 8}
	if s.Allowed == nil {
		s.Allowed = func(uid uint32) bool { return uid == uint32(os.Geteuid()) }
	}
	go func() { out.done <- s.Serve(ctx, ln) }()
	t.Cleanup(cancel)
	return out
}

func ask(c *Client, v any, contents ...[]byte) (string, error) {
	var answer string
	err := c.Ask(context.Background(), v, contents, func(text, content []byte) error {
		answer = string(text) + string(content)
		return nil
	})
	return answer, err
}

func TestServerAnswersAndRecordsWhatItRefuses(t *testing.T) {
	s := serve(t, Server{Handler: &echo{}})
	c := Dial(s.socket, limits, limits)
	uid := os.Geteuid()
	for range 2 {
		if got, err := ask(c, 1, []byte("content")); err != nil || got != fmt.Sprintf(`"%d: 1"content`, uid) {
			t.Errorf("answered %q, %v", got, err)
		}
	}
	if got, err := ask(c, "no"); err != nil || got != `"refused"` {
		t.Errorf("answered %q, %v", got, err)
	}
	line := s.log.String()
	start := fmt.Sprintf("<4>tester refused a request: uid=%d pid=%d reason=\"asked with no\\n", uid, os.Getpid())
	if !strings.HasPrefix(line, start) || strings.Count(line, "\n") != 1 || len(line) > 400 {
		t.Errorf("recorded %q, want one bounded line that begins %q", line, start)
	}
}

func TestServerHearsNobodyElse(t *testing.T) {
	s := serve(t, Server{Handler: &echo{}, Allowed: func(uint32) bool { return false }})
	if got, err := ask(Dial(s.socket, limits, limits), 1); err == nil {
		t.Errorf("answered %q", got)
	}
	if !strings.HasPrefix(s.log.String(), "<4>tester refused a peer: uid=") {
		t.Errorf("recorded %q", s.log)
	}
}

func TestAServerSaysHowManyConnectionsItTakes(t *testing.T) {
	for connections, want := range map[int]int{0: 4, 1: 1, 6: 6} {
		s := serve(t, Server{Handler: &echo{}, Connections: connections})
		var kept []*Client // and their connections
		for i := range want + 1 {
			kept = append(kept, Dial(s.socket, limits, limits))
			if _, err := ask(kept[i], 1); (err == nil) != (i < want) {
				t.Errorf("of %d: the connection after %d others: %v", connections, i, err)
			}
		}
		for _, c := range kept {
			_ = c.Close()
		}
		if !strings.Contains(s.log.String(), fmt.Sprintf("refused a connection: uid=%d pid=%d reason=\"%d are open\"",
			os.Geteuid(), os.Getpid(), want)) {
			t.Errorf("recorded %q", s.log)
		}
	}
}

func TestAFatalReplyEndsTheServerWithItsReason(t *testing.T) {
	why := errors.New("read-only")
	s := serve(t, Server{Handler: &echo{fatal: why}})
	if _, err := ask(Dial(s.socket, limits, limits), 1); err != nil {
		t.Errorf("the reply: %v", err)
	}
	if err := <-s.done; !errors.Is(err, why) {
		t.Errorf("ended with %v", err)
	}
}

func TestAnIdleServerEndsAndItsPeersMeetTheNext(t *testing.T) {
	ln := listen(t)
	s := serveOn(t, ln, Server{Handler: &echo{}, IdleTimeout: time.Millisecond})
	c := Dial(s.socket, limits, limits)
	// Served, or in the queue of a listener that nobody reads: both are fine here.
	asked := make(chan error, 1)
	go func() {
		_, err := ask(c, 1)
		asked <- err
	}()
	if err := <-s.done; err != nil {
		t.Errorf("ended with %v", err)
	}
	// What the server did to the listener ends with its process; here it is undone.
	if err := ln.SetDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	serveOn(t, ln, Server{Handler: &echo{}})
	if err := <-asked; err != nil {
		t.Errorf("the first request: %v", err)
	}
	if _, err := ask(c, 1); err != nil {
		t.Errorf("the next request: %v", err)
	}
}

func TestIdleTimeCountsFromTheEndOfTheLastRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin, ended := time.Now(), make(chan time.Time, 1)
		r := &run{Server: &Server{IdleTimeout: time.Minute}, end: func() { ended <- time.Now() }}
		r.resetIdleTimer()
		for at, requests := range map[time.Duration][]int{
			59 * time.Second: {1},
			6 * time.Minute:  {1, -1},
			11 * time.Minute: {-1},
		} {
			time.AfterFunc(at, func() {
				for _, n := range requests {
					r.addBusy(n)
				}
			})
		}
		if took := (<-ended).Sub(begin); took != 12*time.Minute {
			t.Errorf("ended after %v, want a minute after the last request", took)
		}
	})
}

// waiting tells what would end each request.
type waiting struct {
	echo
	ends chan (<-chan struct{})
}

func (w *waiting) Answer(ctx context.Context, who Peer, text, content []byte) Reply {
	w.ends <- ctx.Done()
	return w.echo.Answer(ctx, who, text, content)
}

// TestNeitherItsPeerNorAStopEndsARequest: whoever hangs up or stops the server finds the effect whole and recorded.
func TestNeitherItsPeerNorAStopEndsARequest(t *testing.T) {
	w := &waiting{ends: make(chan (<-chan struct{}), 1)}
	s := serve(t, Server{Handler: w})
	if _, err := ask(Dial(s.socket, limits, limits), 1); err != nil {
		t.Fatal(err)
	}
	if <-w.ends != nil {
		t.Error("the context of a request can end")
	}
}

func TestARequestUnderWayIsFinishedAndAQuietPeerIsHungUpOn(t *testing.T) {
	e := &echo{begun: make(chan struct{}), goOn: make(chan struct{})}
	s := serve(t, Server{Handler: e})
	quiet, err := net.Dial("unix", s.socket)
	if err != nil {
		t.Fatal(err)
	}
	result := make(chan error)
	go func() {
		_, err := ask(Dial(s.socket, limits, limits), 1)
		result <- err
	}()
	<-e.begun
	s.stop()
	close(e.goOn)
	if err := <-result; err != nil {
		t.Errorf("answered %v", err)
	}
	if b, err := io.ReadAll(quiet); err != nil || len(b) > 0 {
		t.Errorf("the quiet one heard %q, %v", b, err)
	}
	if err := <-s.done; err != nil {
		t.Errorf("ended with %v", err)
	}
}
