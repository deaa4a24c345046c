// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// pipeHalf is one direction of a connection. It holds whatever is written: with net.Pipe two TLS peers that write
// at once would wait for each other.
type pipeHalf struct {
	mu       sync.Mutex
	changed  *sync.Cond
	data     []byte
	closed   bool
	deadline time.Time
	timer    *time.Timer
}

func newPipeHalf() *pipeHalf {
	h := &pipeHalf{}
	h.changed = sync.NewCond(&h.mu)
	return h
}

func (h *pipeHalf) read(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		switch {
		case !h.deadline.IsZero() && !time.Now().Before(h.deadline):
			return 0, os.ErrDeadlineExceeded
		case len(h.data) > 0:
			n := copy(p, h.data)
			h.data = h.data[n:]
			return n, nil
		case h.closed:
			return 0, io.EOF
		}
		h.changed.Wait()
	}
}

func (h *pipeHalf) write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return 0, io.ErrClosedPipe
	}
	h.data = append(h.data, p...)
	h.changed.Broadcast()
	return len(p), nil
}

func (h *pipeHalf) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	if h.timer != nil {
		h.timer.Stop()
	}
	h.changed.Broadcast()
}

func (h *pipeHalf) setDeadline(t time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.timer != nil {
		h.timer.Stop()
		h.timer = nil
	}
	h.deadline = t
	if !t.IsZero() && !h.closed {
		h.timer = time.AfterFunc(time.Until(t), func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.changed.Broadcast()
		})
	}
	h.changed.Broadcast()
}

// conn is one end of a connection.
type conn struct {
	in, out *pipeHalf
	address address
}

// connect gives both ends of a new connection.
func connect(to string) (client, server *conn) {
	a, b := newPipeHalf(), newPipeHalf()
	return &conn{a, b, address(to)}, &conn{b, a, address(to)}
}

type address string

func (address) Network() string  { return "memory" }
func (a address) String() string { return string(a) }

func (c *conn) Read(p []byte) (int, error)  { return c.in.read(p) }
func (c *conn) Write(p []byte) (int, error) { return c.out.write(p) }
func (c *conn) Close() error {
	c.in.close()
	c.out.close()
	return nil
}
func (c *conn) LocalAddr() net.Addr                { return c.address }
func (c *conn) RemoteAddr() net.Addr               { return c.address }
func (c *conn) SetDeadline(t time.Time) error      { return c.SetReadDeadline(t) }
func (c *conn) SetReadDeadline(t time.Time) error  { c.in.setDeadline(t); return nil }
func (c *conn) SetWriteDeadline(_ time.Time) error { return nil } // writing never waits

// listener hands connections to a server.
type listener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
	name  string
}

func newListener(name string) *listener {
	return &listener{conns: make(chan net.Conn), done: make(chan struct{}), name: name}
}

var errRefused = errors.New("connection refused")

// dial connects to the server behind the listener.
func (l *listener) dial() (*conn, error) {
	client, server := connect(l.name)
	select {
	case l.conns <- server:
		return client, nil
	case <-l.done:
		return nil, errRefused
	}
}

// Accept implements net.Listener, as the methods that follow do.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close ends it.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

// Addr is a name.
func (l *listener) Addr() net.Addr { return address(l.name) }
