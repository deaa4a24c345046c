// SPDX-License-Identifier: Apache-2.0

// Package signer is the process that has the CA keys of a control-plane host. It answers the unprivileged process
// renew and root, over a socket that systemd made, and tells them which pairs there are.
//
// No request names a path or carries bytes of a file, and no reply holds any: a pair goes by its name, and what it is
// comes from the flags of the components that run (package inspect). The package imports nothing that could reach the
// network or the bus.
//
// Requests and replies travel as package frame says, a request in one frame.
//
// Sources: unix(7) for SO_PEERCRED; sd-daemon(3) for the priority prefixes.
package signer

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/frame"
	"github.com/node-cert-agent/node-cert-agent/renew/inspect"
)

// idleTimeout is how long nobody may have asked for anything before the process ends. A host is inspected every few
// minutes, and a process that is not there has no keys in its memory.
const idleTimeout = 30 * time.Second

// Serve answers peers on ln until ctx ends or nobody has asked for anything for a while; then it returns nil, and ln
// stays open. allowed decides by user id who may speak. log takes one line a call, with a priority prefix for the
// journal.
func Serve(ctx context.Context, ln *net.UnixListener, host inspect.Host, allowed func(uid uint32) bool,
	log io.Writer) error {
	log = frame.TimeoutLog("signer", log)
	s := frame.Server{Name: "signer", Requests: requests, Replies: replies, Allowed: allowed,
		Handler: &handler{host: host}, Log: log, IdleTimeout: idleTimeout}
	return s.Serve(ctx, ln)
}

// handler is the frame.Handler.
type handler struct{ host inspect.Host }

// Refuse implements frame.Handler.
func (h *handler) Refuse(reason string) any { return reply{Error: &Error{Refused, reason}} }

// Answer implements frame.Handler.
func (h *handler) Answer(_ context.Context, _ frame.Peer, text, _ []byte) frame.Reply {
	r, err := h.handle(text)
	if err == nil {
		return frame.Reply{Value: r}
	}
	e := &Error{Failed, err.Error()}
	errors.As(err, &e)
	out := frame.Reply{Value: reply{Error: e}}
	if e.Reason == Refused {
		out.Refused = e.Detail
	}
	return out
}

func (h *handler) handle(text []byte) (r reply, err error) {
	var q request
	if err := frame.Decode(text, &q, requests); err != nil {
		return r, &Error{Refused, "malformed request: " + err.Error()}
	}
	if q.parts() != 1 {
		return r, &Error{Refused, "a request asks for exactly one thing"}
	}
	seen, err := h.host.Inspect()
	return reply{Inspection: &seen}, err
}
