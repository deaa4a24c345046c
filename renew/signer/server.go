// SPDX-License-Identifier: Apache-2.0

// Package signer is the process that has the CA keys of a control-plane host. It answers the unprivileged process
// renew and root, over a socket that systemd made: which pairs there are, renew this one, keep or restore it, sign
// this handshake.
//
// No request names a path or carries bytes of a file, and no reply holds a byte of a key: a pair goes by its name,
// and what it is comes from the flags of the components that run (package inspect). The package imports nothing that
// could reach the network or the bus.
//
// It promises to root that a pair is replaced only by a successor with the same subject and the same extensions
// (package issue), one pair at a time, only if it is due by the signer's own clock or root insists, and that no CA is
// touched. To a process renew that is fully compromised it gives no more than this: the pair that waits for proof is
// kept or restored, but not for one that has ended; and TLS 1.3 client handshakes with that pair, for as long as it
// waits. Where renewal.throughEtcd is set, it also gives certificates that follow those whose keys have asked for
// them, and are due. Where renewal.mode is renew, it also gives renewals of what is due, restarts of static pods once
// for each version of their files, and handshakes with a client pair for etcd: the lock of all hosts is there.
//
// Requests and replies travel as package frame says, a request in one frame.
//
// Sources: unix(7) for SO_PEERCRED; sd-daemon(3) for the priority prefixes; RFC 8446 4.4.3.
package signer

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/disk"
	"github.com/node-cert-agent/node-cert-agent/agent/frame"
	"github.com/node-cert-agent/node-cert-agent/renew/inspect"
	"github.com/node-cert-agent/node-cert-agent/renew/pair"
	"github.com/node-cert-agent/node-cert-agent/renew/replace"
)

// idleTimeout is how long nobody may have asked for anything before the process ends. A host is inspected every few
// minutes, and a process that is not there has no keys in its memory.
const idleTimeout = 30 * time.Second

// renewalEvery is how often the service may have a pair renewed, after the first forty times. A host of kubeadm whose
// certificates live ten minutes needs two a minute.
const renewalEvery = 10 * time.Second

// Policy is what the configuration of the host allows.
type Policy struct {
	pair.Policy
	// Lifetime is how long a successor lives; 0 is as long as the pair before it.
	Lifetime time.Duration
	// ReuseKey keeps keys.
	ReuseKey bool
	// Restart lets the service have processes ended that read a pair only when they start.
	Restart bool
}

// Signer is what a Server works with.
type Signer struct {
	Host inspect.Host
	// Replacer changes files. Nil where nothing may be written: then this process only looks.
	Replacer *replace.Replacer
	// Blocked is why a pair that a process before this one left can be neither kept nor restored.
	Blocked string
	// Load is called for each request that changes something, and should be cheap.
	Load func() (Policy, error)
	// Now is the signer's own clock.
	Now func() time.Time
	// Terminate ends a process of a control plane.
	Terminate func(*os.Process) error
	// State is the directory for keys that were made for a request and are not in use yet. Nil where nothing may be
	// written.
	State *disk.Directory
	// Random is where keys and serial numbers come from.
	Random io.Reader
}

// Serve answers peers on ln until ctx ends or nobody has asked for anything for a while; then it returns nil, and ln
// stays open. allowed decides by user id who may speak. log takes one line a call, with a priority prefix for the
// journal.
func Serve(ctx context.Context, ln *net.UnixListener, signer Signer, allowed func(uid uint32) bool,
	log io.Writer) error {
	log = frame.TimeoutLog("signer", log)
	h := &handler{Signer: signer, log: log, signatures: frame.RateLimit{Burst: 100, Every: 600 * time.Millisecond},
		renewals: frame.RateLimit{Burst: 40, Every: renewalEvery}, issues: frame.RateLimit{Burst: 40, Every: renewalEvery}}
	s := frame.Server{Name: "signer", Requests: requests, Replies: replies, Allowed: allowed, Handler: h, Log: log,
		IdleTimeout: idleTimeout}
	return s.Serve(ctx, ln)
}

// handler is the frame.Handler.
type handler struct {
	Signer
	log        io.Writer
	signatures frame.RateLimit
	renewals   frame.RateLimit // of the service, which could have a pair renewed and restored without end
	issues     frame.RateLimit // of the service, for other hosts

	pairs sync.Mutex // what was looked at stays so until it is replaced
}

// Refuse implements frame.Handler.
func (h *handler) Refuse(reason string) any { return reply{Error: &Error{Refused, reason}} }

// Answer implements frame.Handler.
func (h *handler) Answer(_ context.Context, who frame.Peer, text, _ []byte) frame.Reply {
	r, err := h.handle(who, text)
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

func (h *handler) handle(who frame.Peer, text []byte) (r reply, err error) {
	var q request
	if err := frame.Decode(text, &q, requests); err != nil {
		return r, &Error{Refused, "malformed request: " + err.Error()}
	}
	switch {
	case q.parts() != 1:
		return r, &Error{Refused, "a request asks for exactly one thing"}
	case q.Sign != nil:
		r.Signature, err = h.sign(*q.Sign)
		return r, err
	}
	h.pairs.Lock()
	defer h.pairs.Unlock()
	switch {
	case q.Inspect:
		return h.inspect()
	case q.Abandon != "":
		return r, h.abandon(who, q.Abandon)
	case q.Renew != nil:
		r.Facts, err = h.renew(who, *q.Renew)
	case q.Restart != nil:
		r.Facts, err = h.restart(who, *q.Restart)
	case q.Request != nil:
		r.Text, err = h.request(who, *q.Request)
	case q.Issue != nil:
		r.Text, err = h.issue(who, *q.Issue)
	case q.Install != nil:
		r.Facts, err = h.install(who, *q.Install)
	case q.Keep != nil:
		r.Facts, err = h.settle(who, *q.Keep, keep)
	default:
		r.Facts, err = h.settle(who, *q.Restore, restore)
	}
	return r, err
}

func (h *handler) inspect() (reply, error) {
	seen, err := h.Host.Inspect()
	if err == nil && h.Replacer != nil {
		waits := h.Replacer.Waiting().Pair.ID
		for i := range seen.Pairs {
			if f := &seen.Pairs[i]; waits != "" && FilesOf(*f).ID == waits {
				h.chain(f)
				waits = f.Name
			}
		}
		if seen.Waiting = waits; waits != "" {
			seen.Blocked = h.Blocked
		}
	}
	if p, loadErr := h.Load(); err == nil && loadErr == nil && p.Mode == pair.ModeRenew {
		seen.Etcd = h.Host.Etcd(seen.Pairs)
	}
	return reply{Inspection: &seen}, err
}
