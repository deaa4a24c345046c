// SPDX-License-Identifier: Apache-2.0

package reloader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/node-cert-agent/node-cert-agent/agent/frame"
	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
)

// Client speaks to a reloader over its socket. Its methods may be called concurrently; each action has a
// connection of its own, and waits for no other request. Every error is an *Error.
type Client struct {
	socket, boot string
	queries      *frame.Client

	mu sync.Mutex
	// affected is what came with the answer to State, for Affected, which the loop asks for next.
	affected map[string]Seen
}

// Dial returns a client of the reloader that listens at the path socket. It connects at the first
// request, so that it cannot fail. Boot is the boot ID that states are marked with (sd_id128_get_boot(3)).
func Dial(socket, boot string) *Client {
	return &Client{socket: socket, boot: boot, queries: frame.Dial(socket, requests, replies), affected: map[string]Seen{}}
}

// Close ends the connection. The client may still be used and connects again.
func (c *Client) Close() error { return c.queries.Close() }

// State says whether a unit runs, and since when; the zero state is one that is masked or does not
// exist. The unit has to be on the allowlist, or be named there as affected.
func (c *Client) State(ctx context.Context, name string) (unitplan.State, error) {
	all, err := c.Look(ctx, name)
	if err != nil {
		return unitplan.State{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.affected[name] = all[0]
	return all[0].State, nil
}

// Affected names the other units on which systemd would act along with the unit's verb, sorted. It
// answers with what was seen by the last State, once, and else asks.
func (c *Client) Affected(ctx context.Context, u unitplan.Unit) ([]string, error) {
	c.mu.Lock()
	s, ok := c.affected[u.Name]
	delete(c.affected, u.Name)
	c.mu.Unlock()
	if !ok {
		all, err := c.Look(ctx, u.Name)
		if err != nil {
			return nil, err
		}
		s = all[0]
	}
	if s.Verb != u.Verb {
		return nil, &Error{Unit: u.Name, Verb: u.Verb, Reason: Refused, Detail: otherVerb(s.Verb)}
	}
	return s.Affected, nil
}

// Act has the unit's verb carried out, waits for the job, and gives the state after it. When ctx ends
// first, the job goes on in systemd.
func (c *Client) Act(ctx context.Context, u unitplan.Unit) (unitplan.State, error) {
	// A new connection, on which a request is sent once: nobody may know what became of the first.
	conn := frame.Dial(c.socket, requests, replies)
	defer func() { _ = conn.Close() }()
	r, err := ask(ctx, conn, request{Act: u.Name})
	switch {
	case err != nil:
		if err.Unit == "" {
			err.Unit, err.Verb = u.Name, u.Verb
		}
		return unitplan.State{}, err
	case r.Done == nil:
		return unitplan.State{}, &Error{Unit: u.Name, Verb: u.Verb, Reason: Unexpected,
			Detail: "an answer to another question"}
	case r.Done.Verb != u.Verb:
		return unitplan.State{}, &Error{Unit: u.Name, Verb: u.Verb, Reason: Unexpected, Detail: otherVerb(r.Done.Verb)}
	}
	return c.withBoot(r.Done.State), nil
}

// Look tells what the reloader sees of units of the allowlist, in the same order.
func (c *Client) Look(ctx context.Context, names ...string) ([]Seen, error) {
	all := make([]Seen, 0, len(names))
	for len(names) > 0 {
		part := names[:min(len(names), maxUnits)]
		names = names[len(part):]
		r, err := ask(ctx, c.queries, request{Observe: part})
		if err != nil {
			if err.Unit == "" && len(part) == 1 {
				err.Unit = part[0]
			}
			return nil, err
		}
		if len(r.Seen) != len(part) {
			return nil, &Error{Unit: part[0], Reason: Unexpected, Detail: fmt.Sprintf("%d answers to %d questions", len(r.Seen),
				len(part))}
		}
		all = append(all, r.Seen...)
	}
	for i := range all {
		all[i].State = c.withBoot(all[i].State)
	}
	return all, nil
}

// Version is what systemd says of itself, such as "252.39-1~deb12u1".
func (c *Client) Version(ctx context.Context) (string, error) {
	r, err := ask(ctx, c.queries, request{Version: true})
	if err != nil {
		err.Unit = "systemd"
		return "", err
	}
	return r.Version, nil
}

// withBoot marks a state with this run of the host.
func (c *Client) withBoot(s unitplan.State) unitplan.State {
	if s.Exists {
		s.Boot = c.boot
	}
	return s
}

func otherVerb(v unitplan.Verb) string {
	if v == "" {
		return "the configuration of the reloader has it not on the allowlist"
	}
	return "the configuration of the reloader says " + string(v)
}

// ask sends one request.
func ask(ctx context.Context, to *frame.Client, q request) (r reply, failed *Error) {
	err := to.Ask(ctx, q, nil, func(text, _ []byte) error { return frame.Decode(text, &r, replies) })
	switch {
	case err == nil && r.Error != nil:
		return reply{}, r.Error
	case err == nil:
		return r, nil
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return reply{}, &Error{Reason: Unfinished, Detail: "no answer from the reloader in time"}
	case errors.Is(err, frame.ErrFrame):
		return reply{}, &Error{Reason: Unexpected, Detail: err.Error()}
	case errors.Is(err, io.EOF):
		return reply{}, &Error{Reason: Unreachable, Detail: "the reloader closed the connection without an answer"}
	}
	return reply{}, &Error{Reason: Unreachable, Detail: err.Error()}
}
