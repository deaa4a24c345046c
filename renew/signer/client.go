// SPDX-License-Identifier: Apache-2.0

package signer

import (
	"context"
	"errors"

	"github.com/node-cert-agent/node-cert-agent/agent/frame"
	"github.com/node-cert-agent/node-cert-agent/renew/inspect"
	"github.com/node-cert-agent/node-cert-agent/renew/pair"
)

// Client speaks to a signer over its socket. Its methods may be called concurrently. Every error is an *Error.
type Client struct{ conn *frame.Client }

// Dial returns a client of the signer that listens at the path socket. It connects at the first request, so that it
// cannot fail.
func Dial(socket string) *Client { return &Client{frame.Dial(socket, requests, replies)} }

// Close ends the connection. The client may still be used and connects again.
func (c *Client) Close() error { return c.conn.Close() }

// Inspect says which pairs there are on the host, and what the signer can see of them.
func (c *Client) Inspect(ctx context.Context) (inspect.Inspection, error) {
	r, err := c.ask(ctx, request{Inspect: true})
	if err == nil && r.Inspection == nil {
		err = &Error{Failed, "an answer to another question"}
	}
	if err != nil {
		return inspect.Inspection{}, err
	}
	return *r.Inspection, nil
}

// Renew has a pair replaced by its successor, and gives what there is then. It waits for Keep or Restore.
func (c *Client) Renew(ctx context.Context, q Change) (pair.Facts, error) {
	return c.change(ctx, request{Renew: &q})
}

// Keep ends the wait of a pair that was proven.
func (c *Client) Keep(ctx context.Context, q Change) (pair.Facts, error) {
	return c.change(ctx, request{Keep: &q})
}

// Restore puts the pair back that there was before.
func (c *Client) Restore(ctx context.Context, q Change) (pair.Facts, error) {
	return c.change(ctx, request{Restore: &q})
}

// Restart ends those who go on with the pair that there was before, so that they are started again.
func (c *Client) Restart(ctx context.Context, q Change) (pair.Facts, error) {
	return c.change(ctx, request{Restart: &q})
}

// Request gives the text with which a host that has the CA's key can be asked for the successor of a pair. It is the
// same one until the pair is another one.
func (c *Client) Request(ctx context.Context, q Change) ([]byte, error) {
	return c.text(ctx, request{Request: &q})
}

// Issue gives the certificate that such a text of another host asks for, in PEM.
func (c *Client) Issue(ctx context.Context, q Issue) ([]byte, error) {
	return c.text(ctx, request{Issue: &q})
}

// Install has a pair replaced by what another host issued, and gives what there is then. It waits for Keep or Restore.
func (c *Client) Install(ctx context.Context, q Install) (pair.Facts, error) {
	return c.change(ctx, request{Install: &q})
}

// Abandon ends the wait of a pair that somebody else changed.
func (c *Client) Abandon(ctx context.Context, pair string) error {
	_, err := c.ask(ctx, request{Abandon: pair})
	return err
}

func (c *Client) text(ctx context.Context, q request) ([]byte, error) {
	r, err := c.ask(ctx, q)
	if err == nil && len(r.Text) == 0 {
		err = &Error{Failed, "an answer to another question"}
	}
	return r.Text, err
}

func (c *Client) change(ctx context.Context, q request) (pair.Facts, error) {
	r, err := c.ask(ctx, q)
	if err == nil && r.Facts == nil {
		err = &Error{Failed, "an answer to another question"}
	}
	if err != nil {
		return pair.Facts{}, err
	}
	return *r.Facts, nil
}

func (c *Client) ask(ctx context.Context, q request) (r reply, err error) {
	err = c.conn.Ask(ctx, q, nil, func(text, _ []byte) error { return frame.Decode(text, &r, replies) })
	switch {
	case err == nil && r.Error != nil:
		return reply{}, r.Error
	case errors.Is(err, frame.ErrFrame):
		return reply{}, &Error{Failed, err.Error()}
	case err != nil:
		return reply{}, &Error{Unavailable, err.Error()}
	}
	return r, nil
}
