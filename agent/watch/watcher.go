// SPDX-License-Identifier: Apache-2.0

// Package watch follows the one object that says what the host's certificates shall be, and in the
// same way the one ConfigMap that some hosts need beside it. It owns the way from the bytes of an HTTP
// response to plan.Desired, and the notice that a directory of the host has changed (FileWatcher).
//
// The object is about 100 KB, nearly all of it fields that are not ours, so it is decoded from the
// stream: the fields that are configured, what names the version, and nothing else is kept (Watcher,
// DecodeObject).
// A field that cannot be used is a fact about that field and never an error of the object, and
// Projector turns it into a refusal: the other files go on.
//
// The Watcher promises one open request at a time, the newest object whatever the consumer's
// speed, a State with a reason whenever there is none, and a next try for everything that can go
// wrong. It never asks for a resourceVersion: a watch without one begins with the object itself,
// which saves a request, and the 410 that every resumption after a restart of the API server costs.
//
// It does not authenticate, and does not know certificates of its own: the caller brings an
// *http.Client that does. It keeps nothing on disk.
//
// Sources: Kubernetes API concepts, "Efficient detection of changes"; openshift/api
// machineconfiguration/v1 types.go; inotify(7).
package watch

import (
	"context"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/clock"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/printable"
)

// State says how following goes. Its text is one or two words, for records and metrics.
type State string

// The states of a Watcher.
const (
	Connecting   State = "connecting"
	Following    State = "following"
	NotFound     State = "not found"
	Unreachable  State = "unreachable"
	Forbidden    State = "forbidden"
	Unauthorized State = "unauthorized"
	Overloaded   State = "overloaded"
)

// Reading is what is known of the object now.
type Reading struct {
	State State
	// Reason is the fact behind State, safe to print; empty if State says it all.
	Reason string
	// Object is the newest version read. It stays when State turns bad, and is nil before the first;
	// an unchanged pointer means that there is nothing new to project.
	Object *Object
	// ServerDate is what a verified API server last said the time is, and SeenAt the local clock at
	// that moment. Zero before the first answer.
	ServerDate, SeenAt time.Time
}

// Options say what to follow, and how patiently. Zero durations mean the defaults.
type Options struct {
	// Client authenticates and verifies the server. It must have no overall timeout and should not
	// follow redirects.
	Client *http.Client
	// Server is the API server's base URL.
	Server *url.URL
	// Group, Version, Resource and Name identify the object, and Namespace if it has one. The core
	// group is empty.
	Group, Version, Resource, Namespace, Name string
	// Key makes the object a ConfigMap: this key of it feeds all fields that take from one.
	Key string
	// Fields are those that are kept; nil means all. What nobody wants may be a secret.
	Fields []plan.Field

	// Grace is how long an open watch may stay without the object before a list asks whether there
	// is one (5 s).
	Grace time.Duration
	// IdleTimeout is how long the server may send no byte before the connection is given up (3 min;
	// bookmarks arrive every minute).
	IdleTimeout time.Duration
	// Timeout is how long one watch is asked to last, give or take a tenth (50 min).
	Timeout time.Duration
	// RetryJitter is the window over which a fleet's first tries after a lost server are spread (5 s).
	// Later windows double.
	RetryJitter time.Duration
	// RetryMax bounds the windows (30 s).
	RetryMax time.Duration

	// Reopen has the watch opened anew at once, and no change of state is shown: the client has a new
	// connection. It may be nil.
	Reopen <-chan struct{}

	// Clock and Rand (in [0,1)) are the system's if nil.
	Clock clock.Clock
	Rand  func() float64
}

// soon is the window for tries that follow no failure.
const soon = time.Second

// Watcher follows one object. Make it with New.
type Watcher struct {
	opt      Options
	readings chan Reading
	now      Reading
	sent     bool
	tries    int // since the last watch that held
}

// New makes a Watcher; Run makes it work.
func New(o Options) *Watcher {
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	if o.Rand == nil {
		o.Rand = rand.Float64
	}
	for d, otherwise := range map[*time.Duration]time.Duration{
		&o.Grace: 5 * time.Second, &o.IdleTimeout: 3 * time.Minute, &o.Timeout: 50 * time.Minute,
		&o.RetryJitter: 5 * time.Second, &o.RetryMax: 30 * time.Second,
	} {
		if *d == 0 {
			*d = otherwise
		}
	}
	return &Watcher{opt: o, readings: make(chan Reading, 1)}
}

// Readings is where every change of the state or the object appears. It holds the newest reading
// only: a slow consumer misses what has been overtaken and never delays the stream.
func (w *Watcher) Readings() <-chan Reading { return w.readings }

// Run follows the object until ctx ends. It must be called once.
func (w *Watcher) Run(ctx context.Context) {
	w.publish(Connecting, "")
	for ctx.Err() == nil {
		e := w.session(ctx)
		if ctx.Err() != nil {
			return
		}
		if e.reopen {
			continue
		}
		if e.state != "" {
			w.publish(e.state, e.reason)
		}
		select {
		case <-ctx.Done():
		case <-w.opt.Clock.After(w.delay(e)):
		case <-w.opt.Reopen:
		}
	}
}

// sessionResult is how a watch request ended.
type sessionResult struct {
	// state and reason are shown until the next try; an empty state changes nothing.
	state  State
	reason string
	// soon is set if nothing is wrong with the server: the next try need not wait.
	soon bool
	// held is set if the watch worked for a while, so that this is a first failure.
	held bool
	// reopen is set if we ended the watch to open it anew.
	reopen bool
	// after is the least delay, which the server asked for.
	after time.Duration
}

// delay is the time to the next try: a random point in a window, so that a fleet does not come back
// as one. The window doubles while tries fail, and a watch that ends as soon as it begins is a
// failure whatever it said: there is no hot loop. It comes after the wait that the server asked for, which
// is the same for all; then it stays small, because half a fleet would wait much longer than the server needs.
func (w *Watcher) delay(e sessionResult) time.Duration {
	if e.held {
		w.tries = 0
	}
	window := w.opt.RetryJitter
	for range w.tries {
		window = min(2*window, w.opt.RetryMax)
	}
	switch {
	case e.soon && w.tries == 0:
		window = soon
	case e.after > 0: // a server that says when to come back is there, and sheds load
		window = min(window, 2*w.opt.RetryJitter)
	}
	w.tries++
	return e.after + time.Duration(w.opt.Rand()*float64(window))
}

// found publishes the object, unless it is the one that is known already. Contents are compared, not
// versions: after etcd was restored from a backup, a version can come again with other content.
func (w *Watcher) found(o *Object) {
	if w.now.Object == nil || !same(*w.now.Object, *o) {
		w.now.Object, w.sent = o, false
	}
	w.publish(Following, "")
}

// publish puts the newest reading where the consumer looks, over the one that is there.
func (w *Watcher) publish(s State, reason string) {
	reason = printable.Text(reason)
	if w.sent && w.now.State == s && w.now.Reason == reason {
		return
	}
	w.now.State, w.now.Reason, w.sent = s, reason, true
	select {
	case <-w.readings:
	default:
	}
	w.readings <- w.now // there is room: nobody else sends
}
