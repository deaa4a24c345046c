// SPDX-License-Identifier: Apache-2.0

package writer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/secret"
)

// Client speaks to a writer over its socket. It keeps one connection open and makes a new one when
// that has ended. Its methods may be called concurrently; requests are sent one at a time.
//
// A request whose kept connection turns out to be dead is sent once more. That is safe for all of them:
// a commit that was done already writes the same bytes, and finds its removals done.
type Client struct {
	socket string
	turn   chan struct{}
	conn   net.Conn
	read   *bufio.Reader
}

// Dial returns a client of the writer that listens at the path socket. It connects at the first
// request, so that it cannot fail.
func Dial(socket string) *Client {
	return &Client{socket: socket, turn: make(chan struct{}, 1)}
}

// Observe is Local.Observe on the other side.
func (c *Client) Observe(ctx context.Context, queries []plan.Query) ([]plan.File, error) {
	files := make([]plan.File, 0, len(queries))
	for len(files) < len(queries) {
		rest := queries[len(files):]
		r, err := c.ask(ctx, request{Observe: rest})
		if err != nil {
			return nil, err
		}
		if len(r.Files) == 0 || len(r.Files) > len(rest) {
			return nil, &Error{Failed, fmt.Sprintf("%d answers to %d queries", len(r.Files), len(rest))}
		}
		files = append(files, r.Files...)
	}
	return files, nil
}

// Commit is Local.Commit on the other side.
func (c *Client) Commit(ctx context.Context, commit plan.Commit) error {
	_, err := c.ask(ctx, request{Commit: &commit})
	return err
}

// Sweep is Local.Sweep on the other side.
func (c *Client) Sweep(ctx context.Context) ([]string, error) {
	r, err := c.ask(ctx, request{Sweep: true})
	return r.Removed, err
}

// Bootstrap is Local.Bootstrap on the other side.
func (c *Client) Bootstrap(ctx context.Context) ([]Credential, error) {
	r, err := c.ask(ctx, request{Bootstrap: true})
	var all []Credential
	for _, f := range r.Credentials {
		all = append(all, Credential{f.Name, f.Digest, secret.New(f.Content), f.Refused})
	}
	return all, err
}

// Consume is Local.Consume on the other side.
func (c *Client) Consume(ctx context.Context, digest plan.Digest) (done string, err error) {
	r, err := c.ask(ctx, request{Consume: digest})
	return r.Done, err
}

// Close ends the connection. The client may still be used and connects again.
func (c *Client) Close() error {
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	c.hangUp()
	return nil
}

func (c *Client) hangUp() {
	if c.conn != nil {
		_ = c.conn.Close()
	}
	c.conn, c.read = nil, nil
}

// ask returns the writer's answer. The context's own error is returned as such, wrapped.
func (c *Client) ask(ctx context.Context, q request) (r reply, err error) {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return r, fmt.Errorf("ask writer: %w", ctx.Err())
	}
	kept := c.conn != nil
	r, err = c.exchange(ctx, q)
	if err != nil && kept && ctx.Err() == nil && !errors.Is(err, errFrame) {
		r, err = c.exchange(ctx, q)
	}
	switch {
	case err == nil && r.Error != nil:
		return r, r.Error
	case err == nil:
		return r, nil
	case ctx.Err() != nil:
		return r, fmt.Errorf("ask writer: %w", ctx.Err())
	case errors.Is(err, errFrame):
		return r, &Error{Refused, err.Error()}
	case errors.Is(err, io.EOF):
		return r, &Error{Unavailable, "it closed the connection without an answer"}
	}
	return r, &Error{Unavailable, err.Error()}
}

// exchange sends one request and reads its reply. After an error the connection is gone.
func (c *Client) exchange(ctx context.Context, q request) (r reply, err error) {
	if c.conn == nil {
		if c.conn, err = new(net.Dialer).DialContext(ctx, "unix", c.socket); err != nil {
			c.conn = nil
			return r, err
		}
		c.read = bufio.NewReader(c.conn)
	}
	conn := c.conn
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer func() {
		if !stop() || err != nil {
			c.hangUp()
		}
	}()
	q, contents := q.detach()
	if err := writeFrame(conn, q, contents); err != nil {
		return r, err
	}
	text, content, err := readFrame(conn, c.read, 0)
	if err != nil {
		return r, err
	}
	if err = decode(text, &r); err == nil {
		err = r.attach(content)
	}
	if err != nil {
		return reply{}, fmt.Errorf("%w: malformed reply: %v", errFrame, err)
	}
	return r, nil
}
