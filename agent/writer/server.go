// SPDX-License-Identifier: Apache-2.0

// Package writer is the process that changes files: the only code that writes them as root. It answers
// five requests (what is on disk, carry out this commit, sweep what a killed commit left, hand out the
// bootstrap credentials, take one of them out of use) for two kinds of caller: the unprivileged agent
// over a unix socket (Serve and Client), and the same process in plain mode (Local).
//
// A request names fields and entries, never paths, modes or owners: these come from the host's own file
// table. Every byte is validated again before it is staged, whatever the caller says of it.
//
// It promises to a caller that is fully compromised no more than to publish valid bundles to listed
// fields, to remove files whose bytes the caller knows from fields with a file for each entry, and to learn and use up
// what is in the bootstrap directory. Peers other than root and the agent's user are refused before a byte of theirs is
// read. It creates no sockets: it accepts on the listener that systemd made. It imports nothing that could reach the
// network or the bus.
//
// # Protocol
//
// Requests and replies travel as package frame says: at most 256 KiB of JSON, in which no more than 4096
// files can be named, and 8 MiB of contents. The client sends what is larger in several requests. The
// reply to an observation may answer only the first part of the queries, at least one; the client asks
// for the others anew.
//
// Sources: sd-daemon(3) for the priority prefixes.
package writer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/frame"
)

// maxReason bounds an error in a reply, in bytes.
const maxReason = 4 << 10

// What peers may have done in total, counted in lines of our log: the largest host is written anew
// several times at once, and after that a file each half second. Without it the log would be the means to
// push out of the journal what it tells.
const (
	burst = 8192
	every = 500 * time.Millisecond
)

// Serve answers peers on ln until ctx ends (then it returns nil) or until the process should be
// replaced: a commit met a read-only file system or a replaced directory, and only a new mount name
// space will do. A request under way is finished, and ln stays open.
//
// load is called for each request and should be cheap; it returns what the present configuration of
// the host allows. Its failure is fatal at first; later it is recorded, and the last good one
// stays in force. allowed decides by user id who may speak.
//
// log takes one line a call, with a priority prefix for the journal.
func Serve(ctx context.Context, ln *net.UnixListener, load func() (*Local, error), allowed func(uid uint32) bool,
	log io.Writer) error {
	local, err := load()
	if err != nil {
		return fmt.Errorf("load files: %w", err)
	}
	log = frame.TimeoutLog("writer", log)
	h := &server{load: load, log: log, local: local, limit: frame.RateLimit{Burst: burst, Every: every}}
	s := &frame.Server{Name: "writer", Requests: requests, Replies: replies, Allowed: allowed, Handler: h, Log: log,
		OnIdle: sync.OnceFunc(func() { h.sweep(ctx) })}
	return s.Serve(ctx, ln)
}

// server is the frame.Handler.
type server struct {
	load func() (*Local, error)
	log  io.Writer

	limit   frame.RateLimit // of lines
	commits sync.Mutex      // what was looked at stays so until it is written over

	mu        sync.Mutex
	local     *Local // the last good one
	lastError string // why it is not the present one
}

// sweep sweeps once in the life of a process: the one before may have been killed in a commit, and the agent
// sweeps only when it starts itself. It is done when nothing is asked for, and what is, waits for no more of
// it than a look into the directories of all fields.
func (s *server) sweep(ctx context.Context) {
	self := frame.Peer{UID: uint32(os.Geteuid()), PID: int32(os.Getpid())}
	// What cannot be removed now is left to the agent's sweep, which hears why.
	_, _ = s.current().recordedBy(&records{s.log, self}).Sweep(ctx)
}

func (s *server) Refuse(reason string) any { return reply{Error: &Error{Kind: refused, Text: reason}} }

func (s *server) Answer(ctx context.Context, who frame.Peer, text, content []byte) (a frame.Reply) {
	r := s.handle(ctx, &records{s.log, who}, text, content)
	if e := r.Error; e != nil {
		e.Text = e.Text[:min(len(e.Text), maxReason)]
		switch {
		case e.Kind == refused || r.tooOften:
			a.Refused = e.Text
		case e.Kind == readOnly:
			a.Fatal = e
		}
	}
	a.Value, a.Contents = r.detach()
	return a
}

func (s *server) handle(ctx context.Context, rec *records, text, content []byte) (r reply) {
	var q request
	err := frame.Decode(text, &q, requests)
	if err == nil {
		err = q.attach(content)
	}
	if err != nil {
		return reply{Error: &Error{Kind: refused, Text: "malformed request: " + err.Error()}}
	}
	local := s.current().recordedBy(rec)
	if e := local.checkDefinitions(q.Files); e != nil {
		return reply{Error: e}
	}
	if n := q.lines(); n > 0 && !s.limit.Allow(n) {
		return reply{tooOften: true, Error: &Error{Kind: failed,
			Text: "more was changed lately than any host needs; this is for later", Untouched: true}}
	}
	switch {
	case q.parts() != 1:
		err = refuse("a request asks for exactly one thing")
	case q.Observe != nil:
		r.Files, err = local.observe(ctx, q.Observe, replyTarget)
	case q.Commit != nil:
		s.commits.Lock()
		err = local.Commit(ctx, *q.Commit)
		s.commits.Unlock()
	case q.Sweep:
		r.Removed, err = local.Sweep(ctx)
	case q.Bootstrap:
		r.Credentials, err = local.Bootstrap(ctx)
	default:
		r.Done, err = local.Consume(ctx, q.Consume)
	}
	if err != nil && !errors.As(err, &r.Error) {
		r.Error = &Error{Kind: failed, Text: err.Error()}
	}
	return r
}

// current is what the host's configuration allows now, or last allowed while it was valid.
func (s *server) current() *Local {
	s.mu.Lock()
	defer s.mu.Unlock()
	local, err := s.load()
	if err == nil {
		s.local, s.lastError = local, ""
		return local
	}
	if text := err.Error(); text != s.lastError {
		s.lastError = text
		fmt.Fprintf(s.log, "<4>writer keeps its last valid settings: reason=%q\n", text)
	}
	return s.local
}
