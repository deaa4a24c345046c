// SPDX-License-Identifier: Apache-2.0

package renew

import (
	"context"
	"crypto"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/clock"
	"github.com/node-cert-agent/node-cert-agent/renew/etcd"
	"github.com/node-cert-agent/node-cert-agent/renew/etcd/etcdtest"
	"github.com/node-cert-agent/node-cert-agent/renew/gate"
	"github.com/node-cert-agent/node-cert-agent/renew/inspect"
	"github.com/node-cert-agent/node-cert-agent/renew/lock"
	"github.com/node-cert-agent/node-cert-agent/renew/pair"
	"github.com/node-cert-agent/node-cert-agent/renew/signer"
)

// shared is an etcd in memory, as each host sees it.
type shared struct {
	*etcdtest.Store
	look func() gate.Look
}

func (s shared) Look(context.Context) gate.Look { return s.look() }
func (shared) Close()                           {}

func well() gate.Look { return gate.Look{Members: []gate.Member{{Name: "a", Leader: 1, Own: true}}} }

// withEtcd is a changer on a host that knows etcd.
type withEtcd struct{ *changer }

func (s withEtcd) Inspect(ctx context.Context) (inspect.Inspection, error) {
	seen, err := s.changer.Inspect(ctx)
	seen.Etcd = &inspect.Etcd{Pair: s.pairs[0].Name, Chain: s.pairs[0].Chain}
	return seen, err
}

// due makes pairs due.
func (s *changer) due(names ...string) *changer {
	for _, name := range names {
		s.at(name).Leaf.NotBefore = time.Now().Add(-70 * time.Hour)
	}
	return s
}

// unattended is a host with its signer, in front of an etcd.
func unattended(host string, s *changer, store *etcdtest.Store, get func(pair.Target) (int, error)) *Unattended {
	o, _ := onDemand(s, get)
	o.Signer, o.Policy.Mode = withEtcd{s}, pair.ModeRenew
	return &Unattended{OnDemand: *o, Host: host, DegradedBelow: time.Hour, Users: true,
		Connect: func(context.Context, inspect.Etcd, crypto.Signer) (Cluster, error) { return shared{store, well}, nil }}
}

func held(t *testing.T, store *etcdtest.Store) *lock.Holder {
	t.Helper()
	h, err := lock.Look(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestWhatIsDueIsRenewedUnderTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, s := &etcdtest.Store{}, newChanger("a", "b", "c").due("a", "c")
		var during []string
		u := unattended("one", s, store, func(pair.Target) (int, error) {
			h := held(t, store)
			during = append(during, h.Host+" "+string(h.Phase)+" "+h.Pair)
			return 200, nil
		})
		s.at("a").Targets = []pair.Target{{Address: "e:1"}}
		if blocked, err := u.Turn(t.Context()); blocked != "" || err != nil {
			t.Fatal(blocked, err)
		}
		if want := "renew a keep a renew c keep c"; strings.Join(s.did, " ") != want {
			t.Errorf("it did %q, want %q", s.did, want)
		}
		if strings.Join(during, ", ") != "one work a" || held(t, store) != nil {
			t.Errorf("the lock was %q, and is %+v", during, held(t, store))
		}
		if blocked, err := u.Turn(t.Context()); blocked != "" || err != nil || len(s.did) != 4 {
			t.Errorf("with nothing due: %q, %v, %q", blocked, err, s.did)
		}
	})
}

func TestWhatEndsSoonComesBeforeTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newChanger("a", "b", "c", "d").due("a", "b", "c", "d")
		s.at("b").Leaf.NotAfter = time.Now().Add(time.Millisecond) // expiring
		s.at("d").Leaf.NotAfter = time.Now().Add(-time.Hour)
		u := unattended("one", s, &etcdtest.Store{}, yes)
		if blocked, err := u.Turn(t.Context()); blocked != "" || err != nil {
			t.Fatal(blocked, err)
		}
		if want := "renew d keep d renew b keep b renew a keep a renew c keep c"; strings.Join(s.did, " ") != want {
			t.Errorf("it did %q, want %q", s.did, want)
		}
	})
}

func TestAHostWaitsForAnother(t *testing.T) {
	store := &etcdtest.Store{}
	other := &lock.Lock{Store: store, Host: "two", Now: time.Now}
	if err := errors.Join(other.Claim(t.Context()), other.Begin(t.Context(), "etcd-peer", "", "")); err != nil {
		t.Fatal(err)
	}
	s := newChanger("a").due("a")
	u := unattended("one", s, store, yes)
	blocked, err := u.Turn(t.Context())
	if err != nil || !strings.Contains(blocked, "held by two, which works on etcd-peer") || len(s.did) > 0 {
		t.Errorf("%q, %v, it did %q", blocked, err, s.did)
	}
	store.Pass(1000 * time.Hour) // time ends no work
	if blocked, _ := u.Turn(t.Context()); blocked == "" || len(s.did) > 0 {
		t.Errorf("after a long time: %q, it did %q", blocked, s.did)
	}
	if err := other.Done(t.Context()); err != nil {
		t.Fatal(err)
	}
	if blocked, err := u.Turn(t.Context()); blocked != "" || err != nil || len(s.did) != 2 {
		t.Errorf("when it is free: %q, %v, it did %q", blocked, err, s.did)
	}
}

func TestWhoHasTheLockIsReportedWhileItMatters(t *testing.T) {
	store := &etcdtest.Store{}
	other := &lock.Lock{Store: store, Host: "two", Now: func() time.Time { return time.Unix(5, 0) }}
	s := newChanger("a").due("a")
	u := unattended("one", s, store, yes)
	r := &Renewer{Signer: s, Clock: clock.System{}, Held: u.Held}
	for _, step := range []struct {
		name   string
		change func(context.Context) error
		want   string
	}{
		{"claimed", other.Claim, "-"}, // it may end by itself
		{"at work", func(ctx context.Context) error { return other.Begin(ctx, "a", "", "") }, "two"},
		{"at work, with nothing due here", func(context.Context) error {
			s.at("a").Leaf.NotAfter = time.Now().Add(1000 * time.Hour)
			return nil
		}, "-"},
		{"free", other.Done, "-"},
	} {
		if err := step.change(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err := u.Turn(t.Context())
		report, reportErr := r.Report(t.Context())
		got := "-"
		if report.Lock != nil && report.Lock.Since.Unix() == 5 {
			got = report.Lock.Host
		}
		if errors.Join(err, reportErr) != nil || got != step.want {
			t.Errorf("%s: %s has it, want %s; %v, %v", step.name, got, step.want, err, reportErr)
		}
	}
}

func TestNothingIsTouchedWhileEtcdIsNotWell(t *testing.T) {
	store, s := &etcdtest.Store{}, newChanger("a", "b").due("a", "b")
	u := unattended("one", s, store, yes)
	looks := 0
	u.Connect = func(context.Context, inspect.Etcd, crypto.Signer) (Cluster, error) {
		return shared{store, func() gate.Look {
			if looks++; looks == 2 {
				return gate.Look{Problem: "no quorum"}
			}
			return well()
		}}, nil
	}
	if blocked, err := u.Turn(t.Context()); blocked != "no quorum" || err != nil || strings.Join(s.did, " ") != "renew a keep a" {
		t.Errorf("%q, %v, it did %q", blocked, err, s.did)
	}
	if h := held(t, store); h == nil || h.Host != "one" || h.Phase != lock.Work {
		t.Errorf("between two pairs the lock is %+v", h)
	}
	if blocked, err := u.Turn(t.Context()); blocked != "" || err != nil || held(t, store) != nil || len(s.did) != 4 {
		t.Errorf("then: %q, %v, it did %q, the lock is %+v", blocked, err, s.did, held(t, store))
	}
	s.due("a")
	looks = 1
	if blocked, err := u.Turn(t.Context()); blocked != "no quorum" || err != nil || len(s.did) != 4 || held(t, store) != nil {
		t.Errorf("at the first pair: %q, %v, it did %q, the lock is %+v", blocked, err, s.did, held(t, store))
	}
}

func TestWithAMemberGoneTheHostsRenewOneAfterTheOtherWhenItIsAlmostTooLate(t *testing.T) {
	store := &etcdtest.Store{}
	for _, host := range []string{"one", "two"} {
		s := newChanger("a").due("a")
		u := unattended(host, s, store, yes)
		u.Connect = func(context.Context, inspect.Etcd, crypto.Signer) (Cluster, error) {
			return shared{store, func() gate.Look {
				return gate.Look{Members: []gate.Member{{Name: "a", Leader: 1, Own: true}, {Name: "b", Leader: 1},
					{Name: "c", Problem: "connection refused"}}}
			}}, nil
		}
		if blocked, err := u.Turn(t.Context()); err != nil || !strings.Contains(blocked, "member c") || len(s.did) > 0 {
			t.Errorf("%s, long before the end: %q, %v, it did %q", host, blocked, err, s.did)
		}
		u.DegradedBelow = 1000 * time.Hour
		if blocked, err := u.Turn(t.Context()); err != nil || blocked != "" || len(s.did) != 2 || held(t, store) != nil {
			t.Errorf("%s: %q, %v, it did %q, the lock is %+v", host, blocked, err, s.did, held(t, store))
		}
	}
}

func TestAHostWhosePairIsNotProvenKeepsTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, s := &etcdtest.Store{}, newChanger("a", "b").due("a", "b")
		s.at("a").Targets = []pair.Target{{Address: "e:1"}}
		u := unattended("one", s, store, func(pair.Target) (int, error) { return 401, nil })
		for range 3 {
			blocked, err := u.Turn(t.Context())
			if err != nil || !strings.Contains(blocked, "e:1 refuses it") || strings.Join(s.did, " ") != "renew a restore a" {
				t.Fatalf("%q, %v, it did %q", blocked, err, s.did)
			}
		}
		other := unattended("two", newChanger("x").due("x"), store, yes)
		if blocked, err := other.Turn(t.Context()); err != nil || !strings.Contains(blocked, "held by one") ||
			!strings.Contains(blocked, "e:1 refuses it") {
			t.Errorf("another host: %q, %v", blocked, err)
		}
	})
}

// TestKilledAnywhereAnotherProcessGoesOn has the signer go away at each request, and a new process come.
func TestKilledAnywhereAnotherProcessGoesOn(t *testing.T) {
	for gone := 1; gone <= 4; gone++ {
		store, s := &etcdtest.Store{}, newChanger("a", "b").due("a", "b")
		s.gone = gone
		if _, err := unattended("one", s, store, yes).Turn(t.Context()); err == nil {
			t.Errorf("at request %d: a signer that is gone is no error", gone)
		}
		if h := held(t, store); h == nil || h.Host != "one" {
			t.Errorf("at request %d: the lock is %+v", gone, h)
		}
		blocked, err := unattended("one", s, store, yes).Turn(t.Context())
		if blocked != "" || err != nil || s.waiting != "" || held(t, store) != nil {
			t.Errorf("at request %d: then %q, %v, waiting %q, the lock is %+v", gone, blocked, err, s.waiting, held(t, store))
		}
		for _, name := range []string{"a", "b"} {
			if v := pair.Judge(*s.at(name), nil, pair.Policy{Mode: pair.ModeRenew, RenewBefore: time.Hour}, time.Now()); v.State != pair.OK {
				t.Errorf("at request %d: %s is %s", gone, name, v.State)
			}
		}
	}
}

func TestWhoReadsAPairAtItsStartIsRestartedUnderTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, s := &etcdtest.Store{}, newChanger("a").due("a")
		s.comesBack = true
		f := s.at("a")
		f.AtStart, f.Changed, f.Users = true, time.Now(), []pair.Component{{Program: "p", Started: time.Now().Add(-time.Hour)}}
		u := unattended("one", s, store, yes)
		connected := 0
		connect := u.Connect
		u.Connect = func(ctx context.Context, e inspect.Etcd, k crypto.Signer) (Cluster, error) {
			connected++
			return connect(ctx, e, k)
		}
		blocked, err := u.Turn(t.Context())
		if want := "renew a keep a restart a"; blocked != "" || err != nil || strings.Join(s.did, " ") != want || held(t, store) != nil {
			t.Errorf("%q, %v, it did %q, want %q", blocked, err, s.did, want)
		}
		before := connected
		if blocked, err := u.Turn(t.Context()); blocked != "" || err != nil || connected != before {
			t.Errorf("with nothing due: %q, %v, etcd was asked %d times", blocked, err, connected-before)
		}
	})
}

func TestNobodyIsRestartedUnderAMereClaim(t *testing.T) {
	store, s := &etcdtest.Store{}, newChanger("a").due("a")
	u := unattended("one", s, store, yes)
	connect := u.Connect
	u.Connect = func(ctx context.Context, e inspect.Etcd, k crypto.Signer) (Cluster, error) {
		*s.at("a") = s.fresh("a") // a person renews it meanwhile
		f := s.at("a")
		f.AtStart, f.Changed, f.Users = true, time.Now(), []pair.Component{{Program: "p", Started: time.Now().Add(-time.Hour)}}
		return connect(ctx, e, k)
	}
	if blocked, err := u.Turn(t.Context()); blocked != "" || err != nil || len(s.did) > 0 || held(t, store) != nil {
		t.Errorf("%q, %v, it did %q, the lock is %+v", blocked, err, s.did, held(t, store))
	}
}

func TestWithoutEtcdNothingIsRenewed(t *testing.T) {
	s := newChanger("a").due("a")
	o, _ := onDemand(s, yes)
	u := &Unattended{OnDemand: *o, Host: "one"}
	if blocked, err := u.Turn(t.Context()); err != nil || !strings.Contains(blocked, "no etcd") || len(s.did) > 0 {
		t.Errorf("%q, %v, it did %q", blocked, err, s.did)
	}
}

// mortal is a process that is killed at its n-th step. What it does after that nobody sees.
type mortal struct {
	left int
	dead bool
}

var errKilled = errors.New("killed")

func (m *mortal) step() error {
	if m.left == 0 {
		m.dead = true
		return errKilled
	}
	m.left--
	return nil
}

// around does something in two steps: a process that is killed at the second has done it, and does not know.
func around[T any](m *mortal, do func() (T, error)) (none T, err error) {
	if err := m.step(); err != nil {
		return none, err
	}
	done, err := do()
	if err == nil {
		err = m.step()
	}
	if err != nil {
		return none, err
	}
	return done, nil
}

type mortalSigner struct {
	withEtcd
	m *mortal
}

func (s mortalSigner) Inspect(ctx context.Context) (inspect.Inspection, error) {
	return around(s.m, func() (inspect.Inspection, error) { return s.withEtcd.Inspect(ctx) })
}

func (s mortalSigner) Renew(ctx context.Context, q signer.Change) (pair.Facts, error) {
	return around(s.m, func() (pair.Facts, error) { return s.withEtcd.Renew(ctx, q) })
}

func (s mortalSigner) Keep(ctx context.Context, q signer.Change) (pair.Facts, error) {
	return around(s.m, func() (pair.Facts, error) { return s.withEtcd.Keep(ctx, q) })
}

func (s mortalSigner) Restart(ctx context.Context, q signer.Change) (pair.Facts, error) {
	return around(s.m, func() (pair.Facts, error) { return s.withEtcd.Restart(ctx, q) })
}

type mortalCluster struct {
	shared
	m *mortal
}

func (c mortalCluster) Get(ctx context.Context, key string) (*etcd.KeyValue, error) {
	return around(c.m, func() (*etcd.KeyValue, error) { return c.shared.Get(ctx, key) })
}

func (c mortalCluster) Commit(ctx context.Context, ch etcd.Change) (etcd.Result, error) {
	return around(c.m, func() (etcd.Result, error) { return c.shared.Commit(ctx, ch) })
}

func (c mortalCluster) Grant(ctx context.Context, ttl time.Duration) (etcd.Lease, error) {
	return around(c.m, func() (etcd.Lease, error) { return c.shared.Grant(ctx, ttl) })
}

func (c mortalCluster) Revoke(ctx context.Context, id etcd.Lease) error {
	_, err := around(c.m, func() (struct{}, error) { return struct{}{}, c.shared.Revoke(ctx, id) })
	return err
}

// TestKilledAtEachStepTheNextProcessGoesOn kills the service before and after each thing that it does to the signer and
// to etcd. The next process ends what was begun, though it may have to wait for a claim to end.
func TestKilledAtEachStepTheNextProcessGoesOn(t *testing.T) {
	steps, waited := 0, 0
	for killed := true; killed; steps++ {
		synctest.Test(t, func(t *testing.T) {
			store, s, m := &etcdtest.Store{}, newChanger("a", "b").due("a", "b"), &mortal{left: steps}
			s.comesBack = true
			f := s.at("a")
			f.AtStart, f.Changed, f.Users = true, time.Now(), []pair.Component{{Program: "p", Started: time.Now().Add(-time.Hour)}}
			u := unattended("one", s, store, yes)
			u.Signer = mortalSigner{withEtcd{s}, m}
			u.Connect = func(context.Context, inspect.Etcd, crypto.Signer) (Cluster, error) {
				return mortalCluster{shared{store, well}, m}, nil
			}
			_, _ = u.Turn(t.Context())
			killed = m.dead
			next := unattended("one", s, store, yes)
			blocked, err := next.Turn(t.Context())
			if blocked != "" && err == nil && strings.Contains(blocked, "which claims it") {
				waited++
				store.Pass(2 * lock.TTL)
				blocked, err = next.Turn(t.Context())
			}
			if blocked != "" || err != nil || s.waiting != "" || held(t, store) != nil {
				t.Errorf("killed at step %d: then %q, %v, waiting %q, the lock is %+v", steps, blocked, err, s.waiting, held(t, store))
			}
			for _, name := range []string{"a", "b"} {
				v := pair.Judge(*s.at(name), nil, pair.Policy{Mode: pair.ModeRenew, RenewBefore: time.Hour}, time.Now())
				if v.State != pair.OK || v.StaleReason() != "" {
					t.Errorf("killed at step %d: %s is %s, %s", steps, name, v.State, v.StaleReason())
				}
			}
		})
	}
	t.Logf("%d steps, %d times a claim had to end", steps, waited)
	if steps < 30 || waited == 0 {
		t.Errorf("%d steps, %d times a claim had to end: this is no whole renewal", steps, waited)
	}
}
