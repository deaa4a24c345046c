// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// defaultConnections is how many connections may be open at once where a server does not say.
	defaultConnections = 4
	// smallFrame is the largest frame, in bytes, that does not wait for the one place for large ones.
	smallFrame = 512 << 10
	// ioTimeout is how long a peer may take to send a frame that it began, or to read its reply, and how long
	// its large frame waits for another.
	ioTimeout = 10 * time.Second
	// grace is how long a connection that has just been accepted may still ask when the server ends:
	// systemd cannot give it to the next process.
	grace = time.Second
	// idleBeforeGC is how long no request may have come before memory is returned to the system. Small ones
	// count as well: many leave as much garbage as a large one.
	idleBeforeGC = time.Second
	// maxReason bounds what is recorded of a refusal, in bytes.
	maxReason = 256
)

// Peer is who connected, as the kernel took note of it at connect(2).
type Peer struct {
	UID uint32
	PID int32
}

// Reply is what a Handler answers.
type Reply struct {
	// Value is sent as JSON, and Contents after it.
	Value    any
	Contents [][]byte
	// Refused is why nothing was done, if the request was not allowed: one line, which is recorded.
	Refused string
	// Fatal ends the server with this error. It stops listening before it replies, so that a peer that
	// asks again at once meets the next process.
	Fatal error
}

// Handler answers requests. Its methods are called concurrently.
type Handler interface {
	// Answer carries out one request. ctx does not end with the server: what has begun is finished,
	// since a peer that hears nothing knows nothing.
	Answer(ctx context.Context, peer Peer, text, content []byte) Reply
	// Refuse is the reply to what was no frame within the limits.
	Refuse(reason string) any
}

// Server answers peers on one listener. Its fields are not changed once it serves.
type Server struct {
	// Name of the process, for records.
	Name string
	// Requests and Replies are the limits of what is read and written.
	Requests, Replies Limits
	// Connections may be open at once; 0 is 4.
	Connections int
	// Allowed decides by user id who may speak.
	Allowed func(uid uint32) bool
	Handler Handler
	// Log takes one line a call, with a priority prefix for the journal. What it fails to take is lost. See
	// TimeoutLog.
	Log io.Writer
	// OnIdle, if set, is called whenever nothing was asked for a second. Requests are answered meanwhile.
	OnIdle func()
	// IdleTimeout ends the server when nothing was asked for so long; 0 is never.
	IdleTimeout time.Duration
}

// Serve answers peers on ln until ctx ends or nothing was asked for s.IdleTimeout (then it returns nil), until
// a reply is Fatal (then it returns that), or until ln fails. A request under way is finished, and ln
// stays open: who connects meanwhile waits for the next process.
func (s *Server) Serve(ctx context.Context, ln *net.UnixListener) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	r := &run{Server: s, ln: ln, end: end, slots: make(chan struct{}, s.connections()), large: make(chan struct{}, 1),
		refusals: RateLimit{Burst: refusalBurst, Every: refusalEvery}}
	r.gcTimer = time.AfterFunc(idleBeforeGC, r.freeMemory)
	defer r.gcTimer.Stop()
	r.resetIdleTimer()
	defer r.stopIdleTimer()
	defer context.AfterFunc(ctx, r.stopAccepting)()
	r.fail(r.accept(ctx))
	r.conns.Wait()
	return r.fatal
}

func (s *Server) connections() int { return cmp.Or(s.Connections, defaultConnections) }

// run is one call of Serve.
type run struct {
	*Server
	ln      *net.UnixListener
	end     context.CancelFunc
	slots   chan struct{} // one for each connection
	large   chan struct{} // one for the frame that may be large
	conns   sync.WaitGroup
	gcTimer *time.Timer // returns memory to the system

	refusals   RateLimit    // to be recorded
	unrecorded atomic.Int64 // refusals since the last one that was

	mu        sync.Mutex
	fatal     error       // why the process should be replaced
	busy      int         // requests under way
	idleTimer *time.Timer // ends the server
}

// freeMemory returns memory to the system. FreeOSMemory collects, too; a sync.Pool lets go of
// what it holds at the second collection only.
func (r *run) freeMemory() {
	if r.OnIdle != nil {
		r.OnIdle()
	}
	runtime.GC()
	debug.FreeOSMemory()
}

// fail ends everything, because of err if that is not nil.
func (r *run) fail(err error) {
	r.mu.Lock()
	if r.fatal == nil {
		r.fatal = err
	}
	r.mu.Unlock()
	r.end()
}

// stopAccepting ends accept; connections that come now wait for the next process.
func (r *run) stopAccepting() { _ = r.ln.SetDeadline(time.Unix(1, 0)) }

// resetIdleTimer starts the idle time again.
func (r *run) resetIdleTimer() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.IdleTimeout <= 0 {
		return
	}
	if r.idleTimer != nil {
		r.idleTimer.Stop()
	}
	var timer *time.Timer
	timer = time.AfterFunc(r.IdleTimeout, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.busy == 0 && r.idleTimer == timer {
			r.end()
		}
	})
	r.idleTimer = timer
}

// stopIdleTimer stops the idle timer.
func (r *run) stopIdleTimer() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.idleTimer != nil {
		r.idleTimer.Stop()
	}
}

// addBusy counts requests under way, by which the server is not idle.
func (r *run) addBusy(n int) {
	r.mu.Lock()
	r.busy += n
	r.mu.Unlock()
	r.resetIdleTimer()
}

// accept returns nil after stopAccepting, which alone sets a deadline.
func (r *run) accept(ctx context.Context) error {
	for {
		conn, err := r.ln.AcceptUnix()
		if err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return nil
			}
			return fmt.Errorf("accept: %w", err)
		}
		who, err := peer(conn)
		if err != nil || !r.Allowed(who.UID) {
			r.record("refused a peer", who, "its user may not speak to the "+r.Name)
			_ = conn.Close()
			continue
		}
		select {
		case r.slots <- struct{}{}:
		default:
			r.record("refused a connection", who, strconv.Itoa(r.connections())+" are open")
			_ = conn.Close()
			continue
		}
		r.conns.Go(func() {
			r.serveConn(ctx, conn, who)
			<-r.slots
		})
	}
}

// peer tells who connected.
func peer(conn *net.UnixConn) (Peer, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return Peer{}, err
	}
	var c *unix.Ucred
	if failure := raw.Control(func(fd uintptr) {
		c, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); failure != nil {
		return Peer{}, failure
	}
	if err != nil {
		return Peer{}, err
	}
	return Peer{c.Uid, c.Pid}, nil
}

func (r *run) record(event string, who Peer, reason string) {
	if !r.refusals.Allow(1) {
		r.unrecorded.Add(1)
		return
	}
	more := ""
	if n := r.unrecorded.Swap(0); n > 0 {
		more = fmt.Sprintf(" unrecorded=%d", n)
	}
	reason = reason[:min(len(reason), maxReason)]
	fmt.Fprintf(r.Log, "<4>%s %s: uid=%d pid=%d reason=%q%s\n", r.Name, event, who.UID, who.PID, reason, more)
}

// serveConn serves one connection.
func (r *run) serveConn(ctx context.Context, conn *net.UnixConn, who Peer) {
	defer conn.Close()
	first := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Now().Add(grace)) })
	defer first()
	from := bufio.NewReader(conn)
	for {
		if _, err := from.Peek(1); err != nil {
			return
		}
		if first() {
			// Ends the wait for the next request, and no reply.
			defer context.AfterFunc(ctx, func() { _ = conn.CloseRead() })()
		}
		first = func() bool { return false }
		r.addBusy(1)
		again := r.serveRequest(ctx, conn, from, who)
		r.gcTimer.Reset(idleBeforeGC)
		r.addBusy(-1)
		if !again || ctx.Err() != nil {
			return
		}
	}
}

// serveRequest serves one request, and says whether another may follow.
func (r *run) serveRequest(ctx context.Context, conn *net.UnixConn, from *bufio.Reader, who Peer) bool {
	text, content, done, err := r.receive(conn, from)
	defer done()
	var a Reply
	switch {
	case err == nil:
		a = r.Handler.Answer(context.WithoutCancel(ctx), who, text, content)
	case errors.Is(err, ErrFrame) || errors.Is(err, errCut):
		a = Reply{Value: r.Handler.Refuse(err.Error()), Refused: err.Error()}
	default:
		return false
	}
	if a.Refused != "" {
		r.record("refused a request", who, a.Refused)
	}
	if a.Fatal != nil {
		r.stopAccepting()
		r.fail(a.Fatal)
	}
	_ = conn.SetWriteDeadline(time.Now().Add(ioTimeout))
	return write(conn, a.Value, a.Contents, r.Replies) == nil && err == nil
}

// receive reads a request whose first byte is there. done is called when it is answered.
func (r *run) receive(conn net.Conn, from *bufio.Reader) (text, content []byte, done func(), err error) {
	done = func() {}
	_ = conn.SetReadDeadline(time.Now().Add(ioTimeout))
	defer func() { _ = conn.SetReadDeadline(time.Time{}) }()
	h, err := readHead(from, r.Requests)
	if err != nil {
		return nil, nil, done, err
	}
	if h.size() > smallFrame {
		wait := time.NewTimer(ioTimeout)
		defer wait.Stop()
		select {
		case r.large <- struct{}{}:
			done = func() { <-r.large }
		case <-wait.C:
			return nil, nil, done, fmt.Errorf("%w: another large one did not end", ErrFrame)
		}
		_ = conn.SetReadDeadline(time.Now().Add(ioTimeout))
	}
	text, content, err = readBody(from, h)
	return text, content, done, err
}
