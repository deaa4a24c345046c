// SPDX-License-Identifier: Apache-2.0

package lock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/renew/etcd"
	"github.com/node-cert-agent/node-cert-agent/renew/etcd/etcdtest"
	"github.com/node-cert-agent/node-cert-agent/renew/lock"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/must"
)

var _ lock.Store = (*etcd.Client)(nil)

// epoch is what every host's clock says.
var epoch = time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC)

// host has a clock that goes on by a second whenever it is read.
func host(name string, s lock.Store) *lock.Lock {
	now := epoch
	return &lock.Lock{Store: s, Host: name, Now: func() time.Time { now = now.Add(time.Second); return now }}
}

func resume(t *testing.T, l *lock.Lock) *lock.Note {
	t.Helper()
	n, err := l.Resume(t.Context())
	must.Do(t, err)
	return n
}

func TestOneHostWorksAndTheNextOneFollows(t *testing.T) {
	s := &etcdtest.Store{}
	a, b := host("a", s), host("b", s)
	must.Do(t, a.Claim(t.Context()))
	must.Do(t, a.Keep(t.Context()))
	must.Do(t, a.Begin(t.Context(), "etcd/server", "digest", ""))
	s.Pass(1000 * time.Hour)
	must.Do(t, a.Begin(t.Context(), "etcd/peer", "digest", "not proven"))
	held, ok := errors.AsType[*lock.HeldError](b.Claim(t.Context()))
	want := lock.Note{Host: "a", Phase: lock.Work, Pair: "etcd/peer", Since: epoch.Add(2 * time.Second),
		Reason: "not proven", Journal: "digest"}
	if !ok || held.Holder.Note != want {
		t.Errorf("b hears %+v", held)
	}
	must.Do(t, a.Done(t.Context()))
	a.Store = nil // there is nothing left to ask for
	must.Do(t, a.Done(t.Context()))
	must.Do(t, b.Claim(t.Context()))
}

func TestWhoSleepsThroughItsClaimMayNotBegin(t *testing.T) {
	s := &etcdtest.Store{}
	a, b := host("a", s), host("b", s)
	must.Do(t, a.Claim(t.Context()))
	s.Pass(lock.TTL)
	if err := a.Keep(t.Context()); !errors.Is(err, lock.ErrLost) {
		t.Errorf("kept: %v", err)
	}
	must.Do(t, b.Claim(t.Context()))
	must.Do(t, b.Begin(t.Context(), "etcd/server", "", ""))
	err := a.Begin(t.Context(), "etcd/server", "", "")
	if held, ok := errors.AsType[*lock.HeldError](err); !ok || !errors.Is(err, lock.ErrLost) || held.Holder.Host != "b" {
		t.Errorf("begun: %v", err)
	}
	a.Store = nil // there is nothing to ask for
	if err := a.Begin(t.Context(), "etcd/server", "", ""); !errors.Is(err, lock.ErrLost) {
		t.Errorf("begun at the second try: %v", err)
	}
	must.Do(t, a.Done(t.Context())) // nothing of a's, and not b's
	if h, err := lock.Look(t.Context(), s); err != nil || h == nil || h.Host != "b" {
		t.Errorf("%+v, %v", h, err)
	}
}

func TestAfterResumeAClaimCountsNoMore(t *testing.T) {
	s := &etcdtest.Store{}
	a := host("a", s)
	must.Do(t, a.Claim(t.Context()))
	if n := resume(t, a); n != nil {
		t.Errorf("a claim is resumed: %+v", n)
	}
	if err := a.Begin(t.Context(), "etcd/server", "", ""); !errors.Is(err, lock.ErrLost) {
		t.Errorf("begun: %v", err)
	}
}

func TestAClaimThatEndedWithNobodyAfterItIsLostToo(t *testing.T) {
	s := &etcdtest.Store{}
	a := host("a", s)
	must.Do(t, a.Claim(t.Context()))
	s.Pass(lock.TTL)
	if err := a.Begin(t.Context(), "etcd/server", "", ""); !errors.Is(err, lock.ErrLost) {
		t.Errorf("begun: %v", err)
	}
	must.Do(t, a.Claim(t.Context()))
	must.Do(t, a.Drop(t.Context()))
	must.Do(t, host("b", s).Claim(t.Context()))
}

func TestWorkOfBeforeARestartIsOursAgain(t *testing.T) {
	s := &etcdtest.Store{}
	a := host("a", s)
	must.Do(t, a.Claim(t.Context()))
	must.Do(t, a.Begin(t.Context(), "etcd/server", "digest", ""))
	again := host("a", s)
	if _, ok := errors.AsType[*lock.HeldError](again.Claim(t.Context())); !ok {
		t.Error("work was claimed over")
	}
	if n := resume(t, host("b", s)); n != nil {
		t.Errorf("b resumes %+v", n)
	}
	if n := resume(t, again); n == nil || n.Pair != "etcd/server" || n.Journal != "digest" {
		t.Errorf("a resumes %+v", n)
	}
	must.Do(t, again.Begin(t.Context(), "etcd/peer", "digest", ""))
	if n := resume(t, host("a", s)); n == nil || n.Pair != "etcd/peer" || !n.Since.Equal(epoch.Add(2*time.Second)) {
		t.Errorf("a works on %+v", n)
	}
	must.Do(t, again.Done(t.Context()))
	if n := resume(t, again); n != nil {
		t.Errorf("a resumes %+v", n)
	}
}

func TestAClaimOfBeforeARestartIsWaitedFor(t *testing.T) {
	s := &etcdtest.Store{}
	must.Do(t, host("a", s).Claim(t.Context()))
	again := host("a", s)
	if n := resume(t, again); n != nil {
		t.Errorf("a claim is resumed: %+v", n)
	}
	must.Do(t, again.Done(t.Context()))
	if err := again.Begin(t.Context(), "etcd/server", "", ""); !errors.Is(err, lock.ErrLost) {
		t.Errorf("begun: %v", err)
	}
	s.Pass(lock.TTL)
	must.Do(t, again.Claim(t.Context()))
}

// losing is a store whose answers to changes are lost while lost is set; and with late, the change comes later.
type losing struct {
	*etcdtest.Store
	lost, late bool
	pending    []etcd.Change
}

var errLost = errors.New("no answer")

func (l *losing) Commit(ctx context.Context, ch etcd.Change) (etcd.Result, error) {
	if l.late {
		l.pending = append(l.pending, ch)
		return etcd.Result{}, errLost
	}
	r, err := l.Store.Commit(ctx, ch)
	if l.lost {
		return etcd.Result{}, errLost
	}
	return r, err
}

func TestAnAnswerThatIsLostIsLookedFor(t *testing.T) {
	s := &losing{Store: &etcdtest.Store{}, lost: true}
	a := host("a", s)
	must.Do(t, a.Claim(t.Context()))
	must.Do(t, a.Begin(t.Context(), "etcd/server", "", ""))
	must.Do(t, a.Begin(t.Context(), "etcd/peer", "", ""))
	if err := a.Done(t.Context()); !errors.Is(err, errLost) {
		t.Errorf("done: %v", err)
	}
	must.Do(t, host("b", s).Claim(t.Context()))
	s.lost = false
	must.Do(t, a.Done(t.Context()))
	if h, err := lock.Look(t.Context(), s); err != nil || h == nil || h.Host != "b" {
		t.Errorf("%+v, %v", h, err)
	}
}

func TestDoneIsTriedAgain(t *testing.T) {
	s := &losing{Store: &etcdtest.Store{}}
	a := host("a", s)
	must.Do(t, a.Claim(t.Context()))
	must.Do(t, a.Begin(t.Context(), "etcd/server", "", ""))
	s.late = true
	if err := a.Done(t.Context()); !errors.Is(err, errLost) {
		t.Errorf("done: %v", err)
	}
	s.late = false
	must.Do(t, a.Done(t.Context()))
	must.Do(t, host("b", s).Claim(t.Context()))
}

func TestABeginThatComesLateIsOurs(t *testing.T) {
	for name, after := range map[string]func(*lock.Lock) error{
		"begun again": func(l *lock.Lock) error { return l.Begin(t.Context(), "etcd/peer", "", "") },
		"done":        func(l *lock.Lock) error { return l.Done(t.Context()) },
		"resumed": func(l *lock.Lock) error {
			if n := resume(t, l); n == nil || n.Pair != "etcd/server" {
				t.Errorf("%+v", n)
			}
			return nil
		},
	} {
		s := &losing{Store: &etcdtest.Store{}}
		a := host("a", s)
		must.Do(t, a.Claim(t.Context()))
		s.late = true
		if err := a.Begin(t.Context(), "etcd/server", "", ""); !errors.Is(err, errLost) {
			t.Errorf("%s: begun: %v", name, err)
		}
		s.late = false
		_, err := s.Store.Commit(t.Context(), s.pending[0])
		must.Do(t, err)
		if err := after(a); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		must.Do(t, a.Done(t.Context()))
		must.Do(t, host("b", s).Claim(t.Context()))
	}
}

func TestAClaimThatComesLateIsNobodys(t *testing.T) {
	s := &losing{Store: &etcdtest.Store{}, late: true}
	if err := host("a", s).Claim(t.Context()); !errors.Is(err, errLost) {
		t.Errorf("claimed: %v", err)
	}
	if _, err := s.Store.Commit(t.Context(), s.pending[0]); err == nil {
		t.Error("a claim whose lease was revoked came true")
	}
}

func TestAPersonReleasesWorkAndTheHolderHearsOfIt(t *testing.T) {
	s := &etcdtest.Store{}
	a := host("a", s)
	must.Do(t, a.Claim(t.Context()))
	must.Do(t, a.Begin(t.Context(), "etcd/server", "", ""))
	h, err := lock.Look(t.Context(), s)
	must.Do(t, err)
	word := lock.Release{By: "root\x1b", Reason: "a is scrap", At: epoch}
	for _, bad := range []lock.Release{{By: "root"}, {Reason: "a is scrap"}} {
		if err := bad.Apply(t.Context(), s, *h); err == nil || !strings.Contains(err.Error(), "takes a name and a reason") {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if r, err := lock.LastRelease(t.Context(), s); r != nil || err != nil {
		t.Errorf("%+v, %v", r, err)
	}
	must.Do(t, word.Apply(t.Context(), s, *h))
	if err := word.Apply(t.Context(), s, *h); !errors.Is(err, lock.ErrChanged) {
		t.Errorf("released again: %v", err)
	}
	word.By, word.Revision, word.Held = `root\x1b`, h.Revision, h.Note
	if r, err := lock.LastRelease(t.Context(), s); err != nil || r == nil || *r != word {
		t.Errorf("%+v, %v", r, err)
	}
	must.Do(t, host("b", s).Claim(t.Context()))
	if err := a.Begin(t.Context(), "etcd/peer", "", ""); !errors.Is(err, lock.ErrLost) {
		t.Errorf("a goes on: %v", err)
	}
}

func TestWhatCannotBeReadIsReleasedToo(t *testing.T) {
	s := &etcdtest.Store{}
	_, err := s.Commit(t.Context(), etcd.Change{Key: lock.Key, Value: []byte("?")})
	must.Do(t, err)
	_, err = s.Commit(t.Context(), etcd.Change{Key: lock.ReleaseKey, Value: []byte("?")})
	must.Do(t, err)
	if _, err := lock.LastRelease(t.Context(), s); err == nil {
		t.Error("a record that is none was read")
	}
	h, err := lock.Look(t.Context(), s)
	must.Do(t, err)
	must.Do(t, lock.Release{By: "root", Reason: "nobody's"}.Apply(t.Context(), s, *h))
	must.Do(t, host("a", s).Claim(t.Context()))
}
