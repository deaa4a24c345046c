// SPDX-License-Identifier: Apache-2.0

package writer

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/node-cert-agent/node-cert-agent/agent/bootstrap"
	"github.com/node-cert-agent/node-cert-agent/agent/frame"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// Client speaks to a writer over its socket, as frame.Client does. Its methods may be called
// concurrently; requests are sent one at a time.
//
// A commit that may have been carried out is not sent again: the second answer would be about the second time, and
// could say that nothing was changed.
type Client struct {
	peer  *frame.Client
	files map[plan.Field]plan.Digest
}

// Dial returns a client of the writer that listens at the path socket. It connects at the first
// request, so that it cannot fail.
func Dial(socket string) *Client {
	return &Client{peer: frame.Dial(socket, requests, replies)}
}

// For is a client on the same connection whose requests mean these fields: what asks for one of them is
// failed while the writer has read another configuration.
func (c *Client) For(specs []plan.FileSpec) *Client {
	definitions := make(map[plan.Field]plan.Digest, len(specs))
	for _, r := range specs {
		definitions[r.Field] = r.Definition()
	}
	return &Client{peer: c.peer, files: definitions}
}

// Observe is Local.Observe on the other side.
func (c *Client) Observe(ctx context.Context, queries []plan.Query) ([]plan.File, error) {
	files := make([]plan.File, 0, len(queries))
	for len(files) < len(queries) {
		rest := queries[len(files):]
		rest = rest[:min(len(rest), batch)]
		r, err := c.ask(ctx, request{Observe: rest})
		if err != nil {
			return nil, err
		}
		if len(r.Files) == 0 || len(r.Files) > len(rest) {
			return nil, &Error{Kind: failed, Text: fmt.Sprintf("%d answers to %d queries", len(r.Files), len(rest))}
		}
		files = append(files, r.Files...)
	}
	return files, nil
}

// Commit is Local.Commit on the other side. What is too large for one request is sent in several, in
// order, and the first that fails ends it: each is staged as a whole before its first rename.
func (c *Client) Commit(ctx context.Context, commit plan.Commit) error {
	for i, part := range parts(commit) {
		if _, err := c.ask(ctx, request{Commit: &part}); err != nil {
			if e, ok := errors.AsType[*Error](err); ok && i > 0 {
				e.Untouched = false
			}
			return err
		}
	}
	return nil
}

// parts cuts a commit into the fewest that fit a request each; there is at least one.
func parts(c plan.Commit) (all []plan.Commit) {
	var part plan.Commit
	n, size := 0, 0
	next := func(content int) {
		if n == batch || n > 0 && size+content > maxContent {
			all = append(all, part)
			part, n, size = plan.Commit{}, 0, 0
		}
		n, size = n+1, size+content
	}
	for _, w := range c.Writes {
		next(len(w.Data))
		part.Writes = append(part.Writes, w)
	}
	for _, r := range c.Removals {
		next(0)
		part.Removals = append(part.Removals, r)
	}
	return append(all, part)
}

// Sweep is Local.Sweep on the other side.
func (c *Client) Sweep(ctx context.Context) ([]string, error) {
	r, err := c.ask(ctx, request{Sweep: true})
	return r.Removed, err
}

// Bootstrap is Local.Bootstrap on the other side.
func (c *Client) Bootstrap(ctx context.Context) ([]bootstrap.Credential, error) {
	r, err := c.ask(ctx, request{Bootstrap: true})
	return r.Credentials, err
}

// Consume is Local.Consume on the other side.
func (c *Client) Consume(ctx context.Context, digest plan.Digest) (done string, err error) {
	r, err := c.ask(ctx, request{Consume: digest})
	return r.Done, err
}

// Close ends the connection. The client may still be used and connects again.
func (c *Client) Close() error { return c.peer.Close() }

// ask returns the writer's answer. The context's own error is returned as such, wrapped.
func (c *Client) ask(ctx context.Context, q request) (r reply, err error) {
	for _, k := range q.keys() {
		if d, ok := c.files[k.Field]; ok {
			if q.Files == nil {
				q.Files = make(map[plan.Field]plan.Digest)
			}
			q.Files[k.Field] = d
		}
	}
	bare, contents := q.detach()
	err = c.peer.Ask(ctx, bare, contents, func(text, content []byte) error {
		err := frame.Decode(text, &r, replies)
		if err == nil {
			err = r.attach(content)
		}
		if err != nil {
			return fmt.Errorf("%w: malformed reply: %v", frame.ErrFrame, err)
		}
		return nil
	})
	switch {
	case err == nil && r.Error != nil:
		return r, r.Error
	case err == nil:
		return r, nil
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return reply{}, fmt.Errorf("ask writer: %w", err)
	case errors.Is(err, frame.ErrFrame):
		return reply{}, &Error{Kind: refused, Text: err.Error()}
	case errors.Is(err, io.EOF):
		return reply{}, &Error{Kind: unavailable, Text: "it closed the connection without an answer"}
	}
	return reply{}, &Error{Kind: unavailable, Text: err.Error()}
}
