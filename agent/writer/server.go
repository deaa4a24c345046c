// SPDX-License-Identifier: Apache-2.0

package writer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	maxConnections = 4
	// quiet is how long no request may have come before memory is returned to the system. Small ones
	// count as well: many leave as much garbage as a large one.
	quiet = time.Second
	// maxText bounds an error in a reply, in bytes.
	maxText = 4 << 10
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
func Serve(ctx context.Context, ln *net.UnixListener, load func() (*Local, error), allowed func(uid uint32) bool, log io.Writer) error {
	local, err := load()
	if err != nil {
		return fmt.Errorf("load rows: %w", err)
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	s := &server{ln: ln, load: load, allowed: allowed, log: log, end: end, local: local,
		slots: make(chan struct{}, maxConnections), free: time.AfterFunc(quiet, debug.FreeOSMemory)}
	defer s.free.Stop()
	defer context.AfterFunc(ctx, s.deafen)()
	s.fail(s.accept(ctx))
	s.talks.Wait()
	return s.fatal
}

type server struct {
	ln      *net.UnixListener
	load    func() (*Local, error)
	allowed func(uid uint32) bool
	log     io.Writer
	end     context.CancelFunc
	slots   chan struct{}
	talks   sync.WaitGroup
	free    *time.Timer // returns memory to the system

	mu        sync.Mutex
	local     *Local // the last good one
	complaint string // why it is not the present one
	fatal     error  // why the process should be replaced
}

// fail ends everything, because of err if that is not nil.
func (s *server) fail(err error) {
	s.mu.Lock()
	if s.fatal == nil {
		s.fatal = err
	}
	s.mu.Unlock()
	s.end()
}

// deafen ends accept; connections that come now wait for the next process.
func (s *server) deafen() { _ = s.ln.SetDeadline(time.Unix(1, 0)) }

func (s *server) accept(ctx context.Context) error {
	for {
		conn, err := s.ln.AcceptUnix()
		if ctx.Err() != nil {
			if err == nil {
				_ = conn.Close()
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept: %w", err)
		}
		who, err := peer(conn)
		if err != nil || !s.allowed(who.Uid) {
			s.record("refused a peer", who, "its user may not speak to the writer")
			_ = conn.Close()
			continue
		}
		select {
		case s.slots <- struct{}{}:
		default:
			s.record("refused a connection", who, strconv.Itoa(maxConnections)+" are open")
			_ = conn.Close()
			continue
		}
		s.talks.Go(func() {
			s.talk(ctx, conn, who)
			<-s.slots
		})
	}
}

// peer tells who connected: the kernel took note at connect(2).
func peer(conn *net.UnixConn) (who unix.Ucred, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return who, err
	}
	var c *unix.Ucred
	if failure := raw.Control(func(fd uintptr) {
		c, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); failure != nil {
		return who, failure
	}
	if err != nil {
		return who, err
	}
	return *c, nil
}

func (s *server) record(event string, who unix.Ucred, reason string) {
	if len(reason) > 256 {
		reason = reason[:256]
	}
	fmt.Fprintf(s.log, "<4>writer %s: uid=%d pid=%d reason=%q\n", event, who.Uid, who.Pid, reason)
}

// talk serves one connection.
func (s *server) talk(ctx context.Context, conn *net.UnixConn, who unix.Ucred) {
	defer conn.Close()
	// Ends the wait for a request, and no reply.
	defer context.AfterFunc(ctx, func() { _ = conn.CloseRead() })()
	r := bufio.NewReader(conn)
	for {
		text, content, err := readFrame(conn, r, patience)
		var answer reply
		switch {
		case err == nil:
			answer = s.answer(ctx, text, content)
		case errors.Is(err, errFrame) || errors.Is(err, errCut):
			answer.Error = &Error{Refused, err.Error()}
		default:
			return
		}
		if answer.Error != nil {
			s.mind(answer.Error, who)
		}
		_ = conn.SetWriteDeadline(time.Now().Add(patience))
		answer, contents := answer.detach()
		failure := writeFrame(conn, answer, contents)
		s.free.Reset(quiet)
		if err != nil || failure != nil || ctx.Err() != nil {
			return
		}
	}
}

// mind does what an error asks for beside the reply.
func (s *server) mind(e *Error, who unix.Ucred) {
	e.Text = e.Text[:min(len(e.Text), maxText)]
	switch e.Kind {
	case Refused:
		s.record("refused a request", who, e.Text)
	case ReadOnly:
		// Deaf before the reply, so that a caller that asks again at once meets the next process.
		s.deafen()
		s.fail(e)
	}
}

func (s *server) answer(ctx context.Context, text, content []byte) (r reply) {
	var q request
	err := decode(text, &q)
	if err == nil {
		err = q.attach(content)
	}
	if err != nil {
		return reply{Error: &Error{Refused, "malformed request: " + err.Error()}}
	}
	local := s.current()
	// What has begun is finished: a caller that hears nothing knows nothing.
	ctx = context.WithoutCancel(ctx)
	switch {
	case q.parts() != 1:
		err = refuse("a request asks for exactly one thing")
	case q.Observe != nil:
		r.Files, err = local.observe(ctx, q.Observe, enough)
	case q.Commit != nil:
		err = local.Commit(ctx, *q.Commit)
	case q.Sweep:
		r.Removed, err = local.Sweep(ctx)
	case q.Bootstrap:
		var all []Credential
		all, err = local.Bootstrap(ctx)
		for _, c := range all {
			r.Credentials = append(r.Credentials, credential{c.Name, c.Digest, c.Refused, c.Content.Reveal()})
		}
	default:
		r.Done, err = local.Consume(ctx, q.Consume)
	}
	if err != nil && !errors.As(err, &r.Error) {
		r.Error = &Error{Failed, err.Error()}
	}
	return r
}

// current is what the host's configuration allows now, or last allowed while it was valid.
func (s *server) current() *Local {
	s.mu.Lock()
	defer s.mu.Unlock()
	local, err := s.load()
	if err == nil {
		s.local, s.complaint = local, ""
		return local
	}
	if text := err.Error(); text != s.complaint {
		s.complaint = text
		fmt.Fprintf(s.log, "<4>writer keeps its last valid rows: reason=%q\n", text)
	}
	return s.local
}
