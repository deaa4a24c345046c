// SPDX-License-Identifier: Apache-2.0

package etcdclient

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/renew/etcd"
	"github.com/node-cert-agent/node-cert-agent/renew/etcd/etcdtest"
	"github.com/node-cert-agent/node-cert-agent/renew/lock"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/must"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/wait"
)

// shortest is the shortest lease that a real etcd grants, in whole seconds.
const shortest = 2 * time.Second

// TestTheEtcdOfOurTestsIsLikeEtcd holds both to the same.
func TestTheEtcdOfOurTestsIsLikeEtcd(t *testing.T) {
	t.Run("etcd", func(t *testing.T) {
		ours, _ := connect(t, start(t))
		behaves(t, ours, func() {})
		oneAfterTheOther(t, ours)
	})
	t.Run("ours", func(t *testing.T) {
		s, stop := etcdtest.Start()
		defer stop()
		c, err := etcd.New(s.URL, s.TLS, 10*time.Second)
		must.Do(t, err)
		defer c.Close()
		behaves(t, c, func() { s.Store.Pass(shortest) })
		oneAfterTheOther(t, c)
	})
}

// behaves is what package lock builds on. pass lets a lease end.
func behaves(t *testing.T, c *etcd.Client, pass func()) {
	change := func(what string, ch etcd.Change, done bool) int64 {
		t.Helper()
		r, err := c.Commit(t.Context(), ch)
		if err != nil || r.Done != done {
			t.Fatalf("%s: %+v, %v", what, r, err)
		}
		return r.Revision
	}
	notFound := func(what string, err error) {
		t.Helper()
		if status, ok := errors.AsType[*etcd.StatusError](err); !ok || status.Code != etcd.NotFound {
			t.Errorf("%s: %v", what, err)
		}
	}
	stays, err := c.Grant(t.Context(), shortest)
	must.Do(t, err)
	goes, err := c.Grant(t.Context(), shortest)
	must.Do(t, err)
	first := change("absent", etcd.Change{Key: "a", Lease: stays}, true)
	change("not absent", etcd.Change{Key: "a"}, false)
	change("not absent, to delete", etcd.Change{Key: "a", Delete: true}, false)
	second := change("from the first", etcd.Change{Key: "a", From: first}, true)
	change("from the first again", etcd.Change{Key: "a", From: first}, false)
	change("under a lease", etcd.Change{Key: "b", Lease: goes}, true)
	must.Do(t, c.Revoke(t.Context(), stays))
	pass()
	wait.For(t, "the end of a lease", func() bool {
		kv, err := c.Get(t.Context(), "b")
		return err == nil && kv == nil
	})
	kv, err := c.Get(t.Context(), "a")
	if err != nil || kv == nil || kv.Lease != 0 || kv.CreateRevision != first || kv.ModRevision != second {
		t.Errorf("a key that left its lease: %+v, %v", kv, err)
	}
	if ttl, err := c.KeepAlive(t.Context(), goes); ttl != 0 || err != nil {
		t.Errorf("kept what has ended: %v, %v", ttl, err)
	}
	notFound("revoked again", c.Revoke(t.Context(), stays))
	_, err = c.Commit(t.Context(), etcd.Change{Key: "c", Lease: goes})
	notFound("under no lease", err)
	third := change("deleted", etcd.Change{Key: "a", From: second, Delete: true}, true)
	change("deleted again", etcd.Change{Key: "a", From: second, Delete: true}, false)
	change("absent, to delete", etcd.Change{Key: "a", Delete: true}, true)
	if again := change("made again", etcd.Change{Key: "a"}, true); again <= third {
		t.Errorf("revision %d after %d", again, third)
	}
	change("beside it", etcd.Change{Key: "a/b", Value: []byte("x")}, true)
	change("before that", etcd.Change{Key: "a/a"}, true)
	for limit, want := range map[int]string{1: "a/a", 9: "a/a a/b"} {
		all, err := c.List(t.Context(), "a/", limit)
		var keys []string
		for _, kv := range all {
			keys = append(keys, kv.Key)
		}
		if err != nil || strings.Join(keys, " ") != want || string(all[len(all)-1].Value) != "x" && limit > 1 {
			t.Errorf("up to %d of a/: %+v, %v", limit, all, err)
		}
	}
	change("of before it was deleted", etcd.Change{Key: "a", From: second}, false)
}

// oneAfterTheOther has two hosts take turns, the first in spite of a restart and the second with a person's help.
func oneAfterTheOther(t *testing.T, s lock.Store) {
	host := func(name string) *lock.Lock { return &lock.Lock{Store: s, Host: name, Now: time.Now} }
	a, b := host("a"), host("b")
	must.Do(t, a.Claim(t.Context()))
	must.Do(t, a.Keep(t.Context()))
	if _, ok := errors.AsType[*lock.HeldError](b.Claim(t.Context())); !ok {
		t.Error("claimed by two")
	}
	must.Do(t, a.Begin(t.Context(), "etcd/peer", "digest", ""))
	a = host("a")
	if n, err := a.Resume(t.Context()); err != nil || n == nil || n.Pair != "etcd/peer" || n.Journal != "digest" {
		t.Errorf("resumed: %+v, %v", n, err)
	}
	must.Do(t, a.Begin(t.Context(), "etcd/server", "digest", "not proven"))
	held, ok := errors.AsType[*lock.HeldError](b.Claim(t.Context()))
	if !ok || held.Holder.Reason != "not proven" {
		t.Fatalf("b hears %+v", held)
	}
	must.Do(t, lock.Release{By: "root", Reason: "a is scrap", At: time.Now()}.Apply(t.Context(), s, held.Holder))
	if err := a.Begin(t.Context(), "etcd/server", "digest", ""); !errors.Is(err, lock.ErrLost) {
		t.Errorf("a goes on: %v", err)
	}
	must.Do(t, b.Claim(t.Context()))
	must.Do(t, b.Begin(t.Context(), "etcd/peer", "", ""))
	must.Do(t, b.Done(t.Context()))
	if h, err := lock.Look(t.Context(), s); err != nil || h != nil {
		t.Errorf("at the end: %+v, %v", h, err)
	}
}
