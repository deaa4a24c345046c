// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"bufio"
	"context"
	"errors"
	"net"
	"syscall"
	"time"
)

// Client speaks to a Server over its socket. It keeps one connection open and makes a new one when
// that has ended. Its methods may be called concurrently; requests are sent one at a time.
//
// A request whose kept connection turns out to be dead is sent once more if no server can have taken all of it:
// one that was idle has ended, and systemd starts the next. A request that may have been carried out is sent
// once, and its error says no more than that.
type Client struct {
	socket            string
	requests, replies Limits
	sem               chan struct{}
	conn              net.Conn
	read              *bufio.Reader
}

// Dial returns a client of the server that listens at the path socket, with that server's limits. It
// connects at the first request, so that it cannot fail.
func Dial(socket string, requests, replies Limits) *Client {
	return &Client{socket: socket, requests: requests, replies: replies, sem: make(chan struct{}, 1)}
}

// Close ends the connection. The client may still be used and connects again.
func (c *Client) Close() error {
	c.sem <- struct{}{}
	defer func() { <-c.sem }()
	c.disconnect()
	return nil
}

func (c *Client) disconnect() {
	if c.conn != nil {
		_ = c.conn.Close()
	}
	c.conn, c.read = nil, nil
}

// Ask sends v and contents, and hands the JSON and the contents of the reply to decode. Errors are the
// context's own, ErrFrame (a request or a reply that is too large or none), errCut, decode's, those of
// the connection, and io.EOF where the server hung up without an answer.
func (c *Client) Ask(ctx context.Context, v any, contents [][]byte, decode func(text, content []byte) error) error {
	select {
	case c.sem <- struct{}{}:
		defer func() { <-c.sem }()
	case <-ctx.Done():
		return ctx.Err()
	}
	kept := c.conn != nil
	text, content, taken, err := c.exchange(ctx, v, contents)
	if err != nil && kept && !taken && ctx.Err() == nil && !errors.Is(err, ErrFrame) {
		text, content, _, err = c.exchange(ctx, v, contents)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, context.DeadlineExceeded): // dialing looks at the end of ctx by itself, and may be first
		return context.DeadlineExceeded
	case err != nil:
		return err
	}
	if err := decode(text, content); err != nil {
		c.disconnect()
		return err
	}
	return nil
}

// exchange sends one request and reads its reply. After an error the connection is gone, and taken says whether the
// server may have the whole request. It has not if the connection ended before all was sent; nor if it was reset,
// which is what the kernel says when a peer closes a unix socket with something left to read.
func (c *Client) exchange(ctx context.Context, v any, contents [][]byte) (text, content []byte, taken bool, err error) {
	if c.conn == nil {
		if c.conn, err = new(net.Dialer).DialContext(ctx, "unix", c.socket); err != nil {
			c.conn = nil
			return nil, nil, false, err
		}
		c.read = bufio.NewReader(c.conn)
	}
	conn := c.conn
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer func() {
		if !stop() || err != nil {
			c.disconnect()
		}
	}()
	if err := write(conn, v, contents, c.requests); err != nil {
		return nil, nil, false, err
	}
	text, content, err = read(c.read, c.replies)
	return text, content, !errors.Is(err, syscall.ECONNRESET), err
}
