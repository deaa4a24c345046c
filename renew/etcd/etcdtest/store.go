// SPDX-License-Identifier: Apache-2.0

// Package etcdtest is an etcd for tests: complete for what package etcd asks, in memory, with a clock that a test
// moves. A Store may be used as it is, or through a Server over real HTTP/2 and TLS on loopback.
//
// It has one member, always a majority, and fails when it is told to. That it behaves as etcd does is shown in
// tests/etcdclient, where both are held to the same expectations.
package etcdtest

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/node-cert-agent/node-cert-agent/renew/etcd"
)

// Store is what an etcd keeps. The zero value is empty. Its methods may be called concurrently.
type Store struct {
	mu       sync.Mutex
	revision int64
	now      time.Duration
	keys     map[string]etcd.KeyValue
	leases   map[etcd.Lease]lease
	granted  etcd.Lease // the last one
}

type lease struct{ ttl, end time.Duration }

// Pass lets time go by, and leases end.
func (s *Store) Pass(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now += d
	for id, l := range s.leases {
		if l.end <= s.now {
			s.end(id)
		}
	}
}

func (s *Store) end(id etcd.Lease) {
	delete(s.leases, id)
	for name, kv := range s.keys {
		if kv.Lease == id {
			s.revision++
			delete(s.keys, name)
		}
	}
}

// Grant is that of etcd.Client.
func (s *Store) Grant(_ context.Context, ttl time.Duration) (etcd.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leases == nil {
		s.leases = map[etcd.Lease]lease{}
	}
	ttl = max(ttl.Truncate(time.Second), time.Second)
	s.granted++
	s.leases[s.granted] = lease{ttl, s.now + ttl}
	return s.granted, nil
}

// KeepAlive is that of etcd.Client.
func (s *Store) KeepAlive(_ context.Context, id etcd.Lease) (time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ok := s.leases[id]
	if ok {
		s.leases[id] = lease{l.ttl, s.now + l.ttl}
	}
	return l.ttl, nil
}

// Revoke is that of etcd.Client.
func (s *Store) Revoke(_ context.Context, id etcd.Lease) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.leases[id]; !ok {
		return errNoLease
	}
	s.end(id)
	return nil
}

var errNoLease = &etcd.StatusError{Code: etcd.NotFound, Message: "etcdserver: requested lease not found"}

// Get is that of etcd.Client.
func (s *Store) Get(_ context.Context, key string) (*etcd.KeyValue, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.get(key), nil
}

func (s *Store) get(key string) *etcd.KeyValue {
	kv, ok := s.keys[key]
	if !ok {
		return nil
	}
	return &kv
}

// List is that of etcd.Client.
func (s *Store) List(_ context.Context, prefix string, limit int) (all []etcd.KeyValue, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(s.keys)) {
		if strings.HasPrefix(key, prefix) && len(all) < limit {
			all = append(all, s.keys[key])
		}
	}
	return all, nil
}

// Commit is that of etcd.Client.
func (s *Store) Commit(_ context.Context, ch etcd.Change) (etcd.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys == nil {
		s.revision, s.keys = 1, map[string]etcd.KeyValue{}
	}
	old := s.keys[ch.Key]
	if old.ModRevision != ch.From {
		return etcd.Result{Revision: s.revision, Current: s.get(ch.Key)}, nil
	}
	if _, ok := s.leases[ch.Lease]; !ok && ch.Lease != 0 {
		return etcd.Result{}, errNoLease
	}
	s.revision++
	if ch.Delete {
		delete(s.keys, ch.Key)
	} else {
		s.put(etcd.KeyValue{Key: ch.Key, Value: ch.Value, Lease: ch.Lease})
	}
	if ch.Record != nil {
		s.put(etcd.KeyValue{Key: ch.Record.Key, Value: ch.Record.Value})
	}
	return etcd.Result{Done: true, Revision: s.revision}, nil
}

func (s *Store) put(kv etcd.KeyValue) {
	kv.CreateRevision, kv.ModRevision = s.revision, s.revision
	if old, ok := s.keys[kv.Key]; ok {
		kv.CreateRevision = old.CreateRevision
	}
	s.keys[kv.Key] = kv
}
