// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/reply"
)

// listTimeout bounds the one list that a silent watch leads to.
const listTimeout = 30 * time.Second

// session is one watch request, from the dial to the end of the stream.
type session struct {
	*Watcher
	events    chan sessionEvent
	listed    chan sessionEvent
	lasts     time.Duration             // what is asked of the server
	opened    time.Time                 // when it answered 200
	lastByte  atomic.Pointer[time.Time] // when the last byte came; the wall clock may be set meanwhile
	grace     <-chan time.Time
	delivered bool   // the watch has delivered the object
	behind    string // the older version that it showed instead
	settled   bool   // a list has said which version is the newest
}

// sessionEvent is what a goroutine of a session reports: that the server answered, what happened to the object (nil:
// there is none), or the result of the session.
type sessionEvent struct {
	opened bool
	date   time.Time
	object *Object
	result *sessionResult
}

// session follows one watch until it ends. The goroutine that reads the stream has the blocking
// calls, this one has the clocks and all state.
func (w *Watcher) session(parent context.Context) sessionResult {
	ctx, cancel := context.WithCancel(parent)
	jitter := time.Duration((2*w.opt.Rand() - 1) * float64(w.opt.Timeout) / 10)
	s := &session{Watcher: w, events: make(chan sessionEvent), listed: make(chan sessionEvent, 1),
		lasts: w.opt.Timeout + jitter}
	s.touch()
	var last map[plan.Field]Field
	if w.now.Object != nil {
		last = w.now.Object.Fields
	}
	var readers sync.WaitGroup
	defer readers.Wait()
	defer cancel()
	readers.Go(func() { s.stream(ctx, last) })
	idle := w.opt.Clock.After(w.opt.IdleTimeout)
	for {
		select {
		case <-ctx.Done():
			return sessionResult{}
		case <-w.opt.Reopen:
			return sessionResult{reopen: true}
		case ev := <-s.events:
			if ev.result != nil {
				ev.result.held = s.held()
				return *ev.result
			}
			s.handle(ev)
		case <-s.grace:
			s.grace = nil
			readers.Go(func() { s.listed <- s.list(ctx, last) })
		case ev := <-s.listed:
			s.handleList(ev)
		case <-idle:
			idleFor := w.opt.Clock.Now().Sub(*s.lastByte.Load())
			if idleFor >= w.opt.IdleTimeout {
				return sessionResult{state: Unreachable, reason: fmt.Sprintf("the server sent nothing for %v", w.opt.IdleTimeout),
					held: s.held()}
			}
			idle = w.opt.Clock.After(w.opt.IdleTimeout - idleFor)
		}
	}
}

func (s *session) touch() {
	now := s.opt.Clock.Now()
	s.lastByte.Store(&now)
}

// held reports whether the watch was up for long enough to count as a success.
func (s *session) held() bool {
	return !s.opened.IsZero() && s.opt.Clock.Now().Sub(s.opened) >= s.opt.RetryJitter
}

// handle handles an event of the stream.
func (s *session) handle(ev sessionEvent) {
	if ev.opened {
		s.opened = s.opt.Clock.Now()
		s.grace = s.opt.Clock.After(s.opt.Grace)
		s.now.ServerDate, s.now.SeenAt = ev.date, s.opened
		return
	}
	if ev.object != nil && s.now.Object != nil && older(ev.object.ResourceVersion, s.now.Object.ResourceVersion) {
		s.checkOlder(ev.object.ResourceVersion)
		return
	}
	s.grace, s.delivered = nil, true
	if ev.object == nil {
		s.publish(NotFound, s.opt.Name+" was deleted")
		return
	}
	s.found(ev.object)
}

// atOnce is a timer that has fired.
var atOnce = func() <-chan time.Time { c := make(chan time.Time); close(c); return c }()

// checkOlder handles an older version than the one that was read. A watch begins with what the answering server has in
// its cache, and a server that is cut off from etcd stays behind: to accept its version would bring back what is no
// longer trusted. Or etcd was restored from a backup. A list is read from etcd and so decides; it is requested once,
// because a server that catches up shows every version on its way.
func (s *session) checkOlder(version string) {
	if !s.settled && s.behind == "" {
		s.behind, s.grace = version, atOnce
	}
}

// older compares versions, which are numbers since they are revisions of etcd. Anything else is not compared.
func older(a, b string) bool {
	if !number(a) || !number(b) {
		return false
	}
	return len(a) < len(b) || len(a) == len(b) && a < b
}

func number(s string) bool {
	return s != "" && s[0] != '0' && strings.Trim(s, "0123456789") == ""
}

// handleList handles the answer of the list, which says nothing new once the watch has delivered the object.
func (s *session) handleList(ev sessionEvent) {
	switch {
	case s.delivered:
	case ev.result != nil && s.behind != "":
		s.publish(Connecting, fmt.Sprintf("the server shows version %.64s where %.64s was read before, and a list failed: %s",
			s.behind, s.now.Object.ResourceVersion, ev.result.reason))
		s.grace = s.opt.Clock.After(s.opt.RetryMax)
	case ev.result != nil:
		s.publish(Connecting, "the watch is open without the object, and a list failed: "+ev.result.reason)
		s.grace = s.opt.Clock.After(s.opt.RetryMax)
	case ev.object == nil:
		s.publish(NotFound, fmt.Sprintf("there is no %s named %s", s.kind(), s.opt.Name))
	default:
		s.settled = true
		s.found(ev.object)
	}
}

// stream sends the watch request and passes on what comes. It asks for no resourceVersion: the first
// event is then the object as it is, or as it was when the server was last up to date (see checkOlder).
func (s *session) stream(ctx context.Context, last map[plan.Field]Field) {
	send := func(ev sessionEvent) {
		select {
		case s.events <- ev:
		case <-ctx.Done():
		}
	}
	res, failed := s.get(ctx, url.Values{"watch": {"true"}, "allowWatchBookmarks": {"true"},
		"timeoutSeconds": {strconv.Itoa(int(s.lasts / time.Second))}})
	if failed != nil {
		send(sessionEvent{result: failed})
		return
	}
	defer res.Body.Close()
	s.touch()
	opened := s.opt.Clock.Now()
	date, _ := http.ParseTime(res.Header.Get("Date"))
	send(sessionEvent{opened: true, date: date})
	d := s.decoder(res.Body, last, s.touch)
	for ctx.Err() == nil {
		e, err := d.next()
		switch {
		case err != nil:
			send(sessionEvent{result: s.ended(err, s.opt.Clock.Now().Sub(opened))})
			return
		case e.kind == "ERROR":
			send(sessionEvent{result: &sessionResult{state: Connecting, soon: true,
				reason: fmt.Sprintf("the server ended the watch: %d %s: %s", e.status.code, e.status.reason, e.status.message)}})
			return
		case e.object.Name != s.opt.Name:
			// A bookmark, or a server that ignores the selector.
		case e.kind == "ADDED" || e.kind == "MODIFIED":
			send(sessionEvent{object: &e.object})
		case e.kind == "DELETED":
			send(sessionEvent{})
		}
	}
}

// ended is the result of a session whose stream had begun.
func (s *session) ended(err error, after time.Duration) *sessionResult {
	switch {
	case errors.Is(err, io.EOF) && after >= s.lasts-s.lasts/20:
		return &sessionResult{soon: true}
	case errors.Is(err, io.EOF):
		// A server that shuts down ends its watches like this.
		return &sessionResult{state: Connecting, reason: "the server ended the watch early"}
	}
	return &sessionResult{state: Unreachable, reason: "the watch broke: " + reply.Fact(err)}
}

// list asks whether there is an object at all.
func (s *session) list(ctx context.Context, last map[plan.Field]Field) sessionEvent {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	res, failed := s.get(ctx, url.Values{})
	if failed != nil {
		return sessionEvent{result: failed}
	}
	defer res.Body.Close()
	o, err := s.decoder(res.Body, last, nil).item(s.opt.Name)
	if err != nil {
		return sessionEvent{result: &sessionResult{reason: reply.Fact(err)}}
	}
	return sessionEvent{object: o}
}

// get sends a request for the one object. Anything but 200 is the end of the session.
func (s *session) get(ctx context.Context, query url.Values) (*http.Response, *sessionResult) {
	query.Set("fieldSelector", "metadata.name="+s.opt.Name)
	u := s.opt.Server.JoinPath(s.opt.path()...)
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, &sessionResult{state: Unreachable, reason: err.Error()}
	}
	req.Header.Set("Accept", "application/json")
	res, err := s.opt.Client.Do(req)
	if err != nil {
		return nil, &sessionResult{state: Unreachable, reason: reply.Fact(err)}
	}
	if res.StatusCode == http.StatusOK {
		return res, nil
	}
	defer res.Body.Close()
	return nil, s.refusal(res)
}

// path is that of the resource at an API server.
func (o Options) path() []string {
	p := []string{"apis", o.Group, o.Version}
	if o.Group == "" {
		p = []string{"api", o.Version}
	}
	if o.Namespace != "" {
		p = append(p, "namespaces", o.Namespace)
	}
	return append(p, o.Resource)
}

// kind names the resource as kubectl does.
func (w *Watcher) kind() string {
	if w.opt.Group == "" {
		return w.opt.Resource
	}
	return w.opt.Resource + "." + w.opt.Group
}

// decoder is one for what this watcher follows.
func (w *Watcher) decoder(r io.Reader, last map[plan.Field]Field, seen func()) *decoder {
	d := newDecoder(r, last, seen)
	d.key = w.opt.Key
	if w.opt.Fields != nil {
		maps.DeleteFunc(d.fields, func(_ string, id plan.Field) bool { return !slices.Contains(w.opt.Fields, id) })
	}
	return d
}

// refusal turns an answer other than 200 into a state. None of them is a reason to drop credentials:
// a starting API server answers 403 to valid ones until it has read its RBAC rules.
func (s *session) refusal(res *http.Response) *sessionResult {
	e := &sessionResult{state: Unreachable, reason: fmt.Sprintf("the server answered %d %s", res.StatusCode,
		http.StatusText(res.StatusCode))}
	switch res.StatusCode {
	case http.StatusUnauthorized:
		e.state = Unauthorized
	case http.StatusForbidden:
		e.state = Forbidden
	case http.StatusNotFound:
		return &sessionResult{state: NotFound,
			reason: fmt.Sprintf("the server has no resource %s/%s: the CRD is missing", s.kind(), s.opt.Version)}
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		e.state = Overloaded
	}
	e.after = reply.RetryAfter(res.Header, s.opt.Clock.Now())
	var body event
	d := newDecoder(res.Body, nil, nil)
	d.begin()
	if d.object(&body) == nil && body.status.message != "" {
		e.reason += ": " + body.status.message
	}
	return e
}

// same reports whether two objects say the same, version included.
func same(a, b Object) bool {
	return a.Name == b.Name && a.UID == b.UID && a.ResourceVersion == b.ResourceVersion &&
		maps.Equal(a.Annotations, b.Annotations) && maps.EqualFunc(a.Fields, b.Fields, sameField)
}

func sameField(a, b Field) bool {
	return a.Reason == b.Reason && bytes.Equal(a.Data, b.Data) && slices.EqualFunc(a.Entries, b.Entries,
		func(x, y ListEntry) bool {
			return x.File == y.File && x.Reason == y.Reason && bytes.Equal(x.Data, y.Data)
		})
}
