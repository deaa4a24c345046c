// SPDX-License-Identifier: Apache-2.0

// Package lock keeps the renewals of a control plane apart: one host at a time, by a key in etcd.
//
// A host claims the lock under a lease, so that whoever dies or sleeps loses the claim. From the claim to work leads
// one put that depends on the claim's revision, and work lives under no lease. So a host that slept through the end of
// its claim fails at that put, before it has changed anything, and one that sleeps at work is waited for. Time ends
// claims only. Work ends when its host has proven or restored what it changed, or when a person says so (Release), who
// then answers for that host.
//
// Every answer of etcd may be lost, and every request may arrive late. A change without an answer is looked for, and
// where its end cannot be known there is an error, after which the host may change nothing. It finds out with Resume,
// which comes before every Claim.
//
// Names of hosts have to differ, and one process of a host uses the lock. Members of etcd are trusted.
package lock

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/node-cert-agent/node-cert-agent/renew/etcd"
)

// Key is where the lock is in etcd.
const Key = "/node-cert-agent.io/renewal/lock"

// TTL is how long a claim lasts that is not kept. A new leader of etcd lets every lease begin anew, so that the end may
// come after twice as long. KeepInterval is how often to keep a claim.
const (
	TTL          = 60 * time.Second
	KeepInterval = TTL / 3
)

// ErrLost says that what this host held is not its own any more: a claim has ended, or a person released its work.
var ErrLost = errors.New("the lock was lost")

// Store is etcd, as package etcd's Client asks it. What it reads has to be linearizable.
type Store interface {
	Keys
	Leases
}

// Keys are etcd's.
type Keys interface {
	Get(ctx context.Context, key string) (*etcd.KeyValue, error)
	Commit(ctx context.Context, ch etcd.Change) (etcd.Result, error)
}

// Leases are etcd's.
type Leases interface {
	Grant(ctx context.Context, ttl time.Duration) (etcd.Lease, error)
	KeepAlive(ctx context.Context, id etcd.Lease) (time.Duration, error)
	Revoke(ctx context.Context, id etcd.Lease) error
}

// Lock is one host's side of the lock. Its methods are not for concurrent use. Nothing of it needs to outlive the
// process.
type Lock struct {
	Store Store
	// Host is the name of this one, unlike that of every other.
	Host string
	// Now is the clock for notes.
	Now func() time.Time
	// TTL is how long a claim lasts that is not kept, in whole seconds; 0 is the constant of that name.
	TTL time.Duration

	revision int64      // of the note of ours, 0 without one
	working  time.Time  // since when, zero without work
	lease    etcd.Lease // of the claim
}

// Look says who holds the lock; nil is nobody.
func Look(ctx context.Context, s Keys) (*Holder, error) {
	kv, err := s.Get(ctx, Key)
	return read(kv), err
}

// Resume takes up work of this host: of an earlier process, or of a call whose end was unknown. It returns its note,
// or nil if there is none; then the host holds nothing that it knows of. What to do about the work is in the host's
// journal. If that does not know the note's digest, another host has this name, or etcd was restored.
func (l *Lock) Resume(ctx context.Context) (*Note, error) {
	h, err := Look(ctx, l.Store)
	if err != nil {
		return nil, err
	}
	l.revision, l.lease, l.working = 0, 0, time.Time{}
	if !h.ours(l.Host) {
		return nil, nil
	}
	l.revision, l.working = h.Revision, h.Since
	return &h.Note, nil
}

// Claim takes the lock if it is free; otherwise it returns a *HeldError. A claim is for looking whether work may begin,
// and has to be kept.
func (l *Lock) Claim(ctx context.Context) error {
	h, err := Look(ctx, l.Store)
	if err != nil {
		return err
	}
	if h != nil {
		return &HeldError{*h}
	}
	if l.lease, err = l.Store.Grant(ctx, cmp.Or(l.TTL, TTL)); err != nil {
		return err
	}
	l.revision, l.working = 0, time.Time{}
	if err := l.put(ctx, Note{Phase: Claim, Since: l.Now()}, l.lease); err != nil {
		_ = l.Drop(ctx) // or it ends by itself
		return err
	}
	return nil
}

// Keep lets a claim last for another TTL, or returns ErrLost.
func (l *Lock) Keep(ctx context.Context) error {
	ttl, err := l.Store.KeepAlive(ctx, l.lease)
	if err == nil && ttl <= 0 {
		err = ErrLost
	}
	return err
}

// Drop ends a claim before its time.
func (l *Lock) Drop(ctx context.Context) error {
	l.revision = 0
	return l.Store.Revoke(ctx, l.lease)
}

// Begin turns a claim into work on a pair, or work into that on the next one, or says why work does not go on. Only
// after it returned nil may the host change that pair. After ErrLost somebody else may; after another error it can be
// called again.
func (l *Lock) Begin(ctx context.Context, pair, journal, reason string) error {
	if l.revision == 0 {
		return ErrLost
	}
	since := l.working
	if since.IsZero() {
		since = l.Now()
	}
	err := l.put(ctx, Note{Phase: Work, Pair: pair, Since: since, Journal: journal, Reason: reason}, 0)
	if err == nil {
		l.working = since
	}
	return err
}

// Done frees the lock after work, when nothing on the host is left unproven. That somebody has released it already is
// no error; after an error it can be called again.
func (l *Lock) Done(ctx context.Context) error {
	if l.revision == 0 {
		return nil
	}
	_, _, err := l.commit(ctx, etcd.Change{Key: Key, Delete: true})
	if err == nil {
		l.revision = 0
	}
	return err
}

// put writes a note of this host. It returns a *HeldError if somebody else came first and ErrLost if what it was to
// replace is gone.
func (l *Lock) put(ctx context.Context, n Note, lease etcd.Lease) error {
	n.Host = l.Host
	value, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("encoding a note for the lock: %v", err)
	}
	o, h, err := l.commit(ctx, etcd.Change{Key: Key, Value: value, Lease: lease})
	switch {
	case err != nil:
		return err
	case o == done:
		return nil
	}
	fresh := l.revision == 0
	l.revision = 0
	switch {
	case h == nil:
		return ErrLost
	case fresh:
		return &HeldError{*h}
	}
	return fmt.Errorf("%w: %w", ErrLost, &HeldError{*h})
}

// commit makes a change from the note of this host, or from no note. If that was not there, it says who holds the lock.
func (l *Lock) commit(ctx context.Context, ch etcd.Change) (outcome, *Holder, error) {
	for {
		ch.From = l.revision
		r, err := l.Store.Commit(ctx, ch)
		if err != nil {
			kv, lookErr := l.Store.Get(ctx, Key)
			if ch.Delete || lookErr != nil || !written(kv, ch) {
				return gone, nil, err
			}
			r = etcd.Result{Done: true, Revision: kv.ModRevision}
		}
		h := read(r.Current)
		switch o := judge(r, h, ch.From, l.Host); o {
		case again:
			l.revision = h.Revision
		case done:
			l.revision = r.Revision
			return o, nil, nil
		default:
			return o, h, nil
		}
	}
}
