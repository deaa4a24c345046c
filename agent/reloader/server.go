// SPDX-License-Identifier: Apache-2.0

// Package reloader is the process that may act on systemd units, and the only one of ours that reaches
// D-Bus. It owns the no-reboot allowlist: it reads the root-owned configuration itself, and answers three
// requests over a unix socket (Serve and Client): Observe (units of the allowlist: state, what the verb
// would act on along with them), Act (one unit: the configured verb, awaited to its end) and Version (of
// systemd).
//
// A request names units and nothing else. Verb and what may be affected come from the
// configuration; package decide.go says whether an action is allowed now: the unit is on the allowlist
// under its own name, the administrator has accepted each unit that systemd would act on with it, none of
// them comes near its start limit, systemd has no job for it, and it was not acted on too often.
//
// It promises to a caller that is fully compromised no more than to see the state of units on the
// allowlist, and to have the configured verb carried out on one of them at most once a second, and a
// start at most as often as leaves most of the unit's start limit to others. Each action is recorded on
// the log before and after it, and each refusal, with the peer's user and process, which the kernel told.
//
// It does not decide what is pending and does not repeat what failed: that is package agent's. It does not
// cancel a job that takes long. It does not speak D-Bus: package agent/units is the Systemd of the
// process.
//
// Sources: unix(7) for SO_PEERCRED, systemd.unit(5) for start limits, systemctl(1) for job modes.
package reloader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/frame"
	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
)

const (
	// connections that are open at once: one for each action under way, and some that ask.
	connections = 64
	// idleTimeout is how long the process stays up without a request, so that it holds no memory at rest: systemd
	// starts the next one. It is below the minute of the agent's slowest retry, so that a view of the file
	// system that has become wrong does not last.
	idleTimeout = 45 * time.Second
	// lookTimeout bounds what systemd answers at once.
	lookTimeout = 10 * time.Second
)

// Systemd is the service manager, over D-Bus. It is safe for concurrent use. Its errors are *Error.
type Systemd interface {
	// Look tells what a decision about the unit needs. It does not fill in Verb. A unit that is masked
	// or does not exist is the zero Seen.
	Look(context.Context, unitplan.Unit) (Seen, error)
	// Act has the unit's verb carried out without touching any other job, waits for the end of the job, and
	// gives the state after it. It fails unless the job is done and the unit active, or a oneshot that
	// finished well. The reason Later is that a job of somebody else is in the way.
	Act(context.Context, unitplan.Unit) (unitplan.State, error)
	// Version is what systemd says of itself, such as "252.39-1~deb12u1".
	Version(context.Context) (string, error)
}

// Serve answers peers on ln until ctx ends or nothing was asked for idleTimeout; then it returns nil, and ln
// stays open. A job under way goes on in systemd when ctx ends, and its peer is told that its end is
// unknown.
//
// load is called for each request and should be cheap; it returns the present allowlist of the host. Once
// it has succeeded, a failure is recorded and the last good list stays in force. allowed decides by
// user id who may speak. log takes one line a call, with a priority prefix for the journal; what it does not
// take within a second is lost.
func Serve(ctx context.Context, ln *net.UnixListener, sd Systemd, load func() ([]unitplan.Unit, error),
	allowed func(uid uint32) bool, log io.Writer) error {
	log = frame.TimeoutLog("reloader", log)
	h := &handler{ctx: ctx, systemd: sd, load: load, log: log, acting: map[string]bool{}, rates: map[string]rate{}}
	s := frame.Server{Name: "reloader", Requests: requests, Replies: replies, Connections: connections, Allowed: allowed,
		Handler: h, Log: log, IdleTimeout: idleTimeout}
	return s.Serve(ctx, ln)
}

type handler struct {
	ctx     context.Context // of the process
	systemd Systemd
	load    func() ([]unitplan.Unit, error)
	log     io.Writer

	mu        sync.Mutex
	list      []unitplan.Unit // the last good one
	loaded    bool
	lastError string // why it is not the present one
	acting    map[string]bool
	rates     map[string]rate
}

// Refuse implements frame.Handler.
func (h *handler) Refuse(reason string) any {
	return reply{Error: &Error{Reason: Refused, Detail: reason}}
}

// Answer implements frame.Handler.
func (h *handler) Answer(ctx context.Context, who frame.Peer, text, _ []byte) frame.Reply {
	r, err := h.handle(ctx, who, text)
	if err == nil {
		return frame.Reply{Value: r}
	}
	e := &Error{Reason: Unexpected, Detail: err.Error()}
	errors.As(err, &e)
	out := frame.Reply{Value: reply{Error: e}}
	if e.Reason == Refused || e.Reason == Later {
		out.Refused = e.Error()
	}
	return out
}

func (h *handler) handle(ctx context.Context, who frame.Peer, text []byte) (r reply, err error) {
	var q request
	if err := frame.Decode(text, &q, requests); err != nil {
		return r, &Error{Reason: Refused, Detail: "malformed request: " + err.Error()}
	}
	list, err := h.allowlist()
	if err != nil {
		return r, err
	}
	short, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	switch {
	case q.parts() != 1:
		return r, &Error{Reason: Refused, Detail: "a request asks for exactly one thing"}
	case q.Act != "":
		r.Done, err = h.act(ctx, who, list, q.Act)
	case q.Version:
		r.Version, err = h.systemd.Version(short)
	default:
		r.Seen, err = h.observe(short, list, q.Observe)
	}
	return r, err
}

// allowlist is what the host's configuration allows now, or last allowed while it was valid.
func (h *handler) allowlist() ([]unitplan.Unit, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	list, err := h.load()
	if err == nil {
		h.list, h.loaded, h.lastError = list, true, ""
		return list, nil
	}
	if text := err.Error(); text != h.lastError {
		h.lastError = text
		fmt.Fprintf(h.log, "<4>reloader has no valid configuration; the last valid allowlist stays in force: reason=%q\n",
			text)
	}
	if !h.loaded {
		return nil, &Error{Reason: Unreachable, Detail: "its configuration is not valid: " + err.Error()}
	}
	return h.list, nil
}

// observe looks at units of the allowlist, and at those that are named there as affected.
func (h *handler) observe(ctx context.Context, list []unitplan.Unit, names []string) (all []Seen, err error) {
	if len(names) > maxUnits {
		return nil, &Error{Reason: Refused, Detail: fmt.Sprintf("asked about %d units, more than %d", len(names), maxUnits)}
	}
	for _, name := range names {
		if !visible(list, name) {
			return nil, &Error{Unit: name, Reason: Refused, Detail: "it is not on the allowlist"}
		}
		u, listed := find(list, name)
		if !listed {
			u = unitplan.Unit{Name: name}
		}
		s, err := h.systemd.Look(ctx, u)
		if err != nil {
			return nil, err
		}
		s.Verb = u.Verb
		all = append(all, s)
	}
	return all, nil
}

// act decides about one action, records it, carries it out, and records what became of it.
func (h *handler) act(ctx context.Context, who frame.Peer, list []unitplan.Unit, name string) (*done, error) {
	u, ok := find(list, name)
	if !ok {
		return nil, &Error{Unit: name, Reason: Refused, Detail: "it is not on the allowlist"}
	}
	if err := h.begin(u); err != nil {
		return nil, err
	}
	defer h.end(u)
	seen, err := h.look(ctx, u)
	if err != nil {
		return nil, err
	}
	if err := h.admit(u, seen); err != nil {
		return nil, err
	}
	h.record("<5>", "begins", u, seen, who, "")
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(h.ctx, cancel)()
	after, err := h.systemd.Act(ctx, u)
	if err != nil {
		e := &Error{Unit: u.Name, Verb: u.Verb, Reason: Unexpected, Detail: err.Error()}
		errors.As(err, &e)
		switch e.Reason {
		case Unfinished:
			e.Reason, e.Detail = Unreachable, "the reloader has to end before the job does, which goes on"
		case Later:
			e.RetryAt = time.Now().Add(busyDelay)
		}
		h.record("<4>", "failed", u, seen, who, fmt.Sprintf(" reason=%s detail=%q", e.Reason, e.Detail))
		return nil, e
	}
	h.record("<5>", "done", u, seen, who, "")
	return &done{Verb: u.Verb, State: after}, nil
}

// begin keeps two actions on one unit apart.
func (h *handler) begin(u unitplan.Unit) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.acting[u.Name] {
		return &Error{Unit: u.Name, Verb: u.Verb, Reason: Later, Detail: "an earlier action has not ended",
			RetryAt: time.Now().Add(busyDelay)}
	}
	h.acting[u.Name] = true
	return nil
}

func (h *handler) end(u unitplan.Unit) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.acting, u.Name)
}

func (h *handler) look(ctx context.Context, u unitplan.Unit) (Seen, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	return h.systemd.Look(ctx, u)
}

// admit decides, and counts the action that it lets through.
func (h *handler) admit(u unitplan.Unit, s Seen) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if err := decide(u, s, h.rates[u.Name], now); err != nil {
		return err
	}
	h.rates[u.Name] = h.rates[u.Name].afterAction(now)
	return nil
}

// record is the line that docs/audit-records.md describes.
func (h *handler) record(priority, event string, u unitplan.Unit, s Seen, who frame.Peer, more string) {
	fmt.Fprintf(h.log, "%sreloader %s: unit=%q verb=%s affected=%q uid=%d pid=%d%s\n",
		priority, event, u.Name, u.Verb, strings.Join(s.Affected, " "), who.UID, who.PID, more)
}
