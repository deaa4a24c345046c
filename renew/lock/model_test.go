// SPDX-License-Identifier: Apache-2.0

package lock_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/renew/etcd"
	"github.com/node-cert-agent/node-cert-agent/renew/etcd/etcdtest"
	"github.com/node-cert-agent/node-cert-agent/renew/lock"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/must"
)

// world is a cluster of hosts that renew, one step of one host at a time. Between any two steps a host may be stopped,
// killed or cut off, and time may go by.
type world struct {
	rand  *rand.Rand
	store *etcdtest.Store
	hosts []*machine
	// late are requests that were sent and have not arrived.
	late []func()
	// leaseOnly keeps work under the lease of its claim, as locks usually do.
	leaseOnly bool
	story     []event
}

// event is told only if something went wrong.
type event struct {
	format string
	args   []any
}

func (w *world) tell(format string, args ...any) { w.story = append(w.story, event{format, args}) }

// told is the end of the story.
func (w *world) told() (s string) {
	for _, e := range w.story[max(0, len(w.story)-60):] {
		s += "\n" + fmt.Sprintf(e.format, e.args...)
	}
	return s
}

// machine is a host. What survives a restart is in its first two fields.
type machine struct {
	name string
	// journal is the pair that is changed and not proven.
	journal string
	// renewed counts pairs.
	renewed int

	world    *world
	cut, off bool
	asleep   int    // for that many turns
	word     string // the last thing it said
	next     func() (struct{}, bool)
	kill     func()
	yield    func(struct{}) bool
	claim    etcd.Lease
	restarts int
}

// killed ends a machine's program where it is.
type killed struct{}

// step is the end of a machine's turn.
func (m *machine) step() {
	if !m.yield(struct{}{}) {
		panic(killed{})
	}
}

func (m *machine) start() {
	m.next, m.kill = iter.Pull(func(yield func(struct{}) bool) {
		defer func() {
			if r := recover(); r != nil && r != (killed{}) {
				panic(r)
			}
		}()
		m.yield = yield
		for {
			m.say(m.turn())
			m.step()
		}
	})
}

func (m *machine) say(err error) {
	m.word = "fine"
	if err != nil {
		m.word = err.Error()
	}
}

// turn is what the renewing process does when it looks after its pairs. The lock is a new one each time, as after a
// restart, or what was known is lost.
func (m *machine) turn() error {
	l := &lock.Lock{Store: m, Host: m.name, Now: func() time.Time { return epoch }}
	n, err := l.Resume(context.Background())
	if err != nil {
		return err
	}
	if n == nil {
		if err := l.Claim(context.Background()); err != nil {
			return err
		}
		m.step() // the gate
		if err := l.Keep(context.Background()); err != nil {
			return err
		}
	}
	m.prove()
	for _, pair := range []string{"etcd/peer", "etcd/server"}[:1+m.world.rand.IntN(2)] {
		if err := l.Begin(context.Background(), pair, "", ""); err != nil {
			return err
		}
		m.step()
		m.journal = pair
		m.world.tell("%s changes %s", m.name, pair)
		m.prove()
	}
	return l.Done(context.Background())
}

// prove ends a change.
func (m *machine) prove() {
	for range 2 {
		m.step()
	}
	if m.journal != "" {
		m.world.tell("%s has proven %s", m.name, m.journal)
		m.journal = ""
		m.renewed++
	}
}

var errCut = errors.New("etcd cannot be reached")

// ask is a request: it may fail before or after it is done, or arrive later than its end was waited for.
func (m *machine) ask(what string, do func()) error {
	m.step()
	defer m.step()
	if !m.cut {
		m.world.tell("%s: %s", m.name, what)
		do()
		return nil
	}
	switch m.world.rand.IntN(4) {
	case 0:
		m.world.tell("%s: %s, unanswered", m.name, what)
		do()
	case 1:
		m.world.late = append(m.world.late, func() { m.world.tell("%s: %s, late", m.name, what); do() })
	}
	return errCut
}

// asked is ask for a call with a result.
func asked[T any](m *machine, what string, call func() (T, error)) (v T, err error) {
	var got T
	if cut := m.ask(what, func() { got, err = call() }); cut != nil {
		return v, cut
	}
	return got, err
}

func (m *machine) Get(ctx context.Context, key string) (*etcd.KeyValue, error) {
	return asked(m, "look", func() (*etcd.KeyValue, error) { return m.world.store.Get(ctx, key) })
}

func (m *machine) Commit(ctx context.Context, ch etcd.Change) (etcd.Result, error) {
	if m.world.leaseOnly && !ch.Delete {
		ch.Lease = m.claim
	}
	return asked(m, "change", func() (etcd.Result, error) {
		m.world.tell("from %d: %s", ch.From, ch.Value)
		return m.world.store.Commit(ctx, ch)
	})
}

func (m *machine) Grant(ctx context.Context, ttl time.Duration) (id etcd.Lease, err error) {
	m.claim, err = asked(m, "grant", func() (etcd.Lease, error) { return m.world.store.Grant(ctx, ttl) })
	return m.claim, err
}

func (m *machine) KeepAlive(ctx context.Context, id etcd.Lease) (time.Duration, error) {
	return asked(m, "keep", func() (time.Duration, error) { return m.world.store.KeepAlive(ctx, id) })
}

func (m *machine) Revoke(ctx context.Context, id etcd.Lease) error {
	_, err := asked(m, "revoke", func() (struct{}, error) { return struct{}{}, m.world.store.Revoke(ctx, id) })
	return err
}

// happen is one thing that may happen.
func (w *world) happen() {
	m := w.hosts[w.rand.IntN(len(w.hosts))]
	switch n := w.rand.IntN(100); {
	case n < 3:
		m.asleep = 5 + w.rand.IntN(60)
		w.tell("%s sleeps", m.name)
	case n < 5:
		m.kill()
		m.start()
		m.restarts++
		w.tell("%s starts anew", m.name)
	case n < 9:
		m.cut = !m.cut
		w.tell("%s is cut off: %t", m.name, m.cut)
	case n < 17:
		w.pass(time.Duration(1+w.rand.IntN(40)) * time.Second)
	case n < 22 && len(w.late) > 0:
		i := w.rand.IntN(len(w.late))
		w.late[i]()
		w.late = slices.Delete(w.late, i, i+1)
	case m.asleep > 0:
		m.asleep--
	case !m.off:
		m.next()
	}
}

func (w *world) pass(d time.Duration) {
	w.store.Pass(d)
	w.tell("%v go by", d)
}

// wrong says what may not be: two hosts with a changed pair, or one without the lock.
func (w *world) wrong() string {
	var changed []string
	for _, m := range w.hosts {
		if m.journal != "" {
			changed = append(changed, m.name)
		}
	}
	h, err := lock.Look(context.Background(), w.store)
	switch {
	case err != nil:
		return err.Error()
	case len(changed) > 1:
		return "two hosts at once: " + strings.Join(changed, ", ")
	case len(changed) == 1 && !w.leaseOnly && (h == nil || h.Host != changed[0] || h.Phase != lock.Work):
		return fmt.Sprintf("%s works without the lock, which is held by %+v", changed[0], h)
	}
	return ""
}

// newWorld has three hosts, all of whose pairs are due all the time.
func newWorld(seed uint64) *world {
	w := &world{rand: rand.New(rand.NewPCG(seed, 13)), store: &etcdtest.Store{}}
	for _, name := range []string{"a", "b", "c"} {
		m := &machine{name: name, world: w}
		m.start()
		w.hosts = append(w.hosts, m)
	}
	return w
}

// run lets things happen and returns what went wrong.
func (w *world) run(steps int) string {
	for range steps {
		w.happen()
		if wrong := w.wrong(); wrong != "" {
			return wrong
		}
	}
	return ""
}

// heal ends all that is wrong, but for machines that are off, and lets everybody go on until each has renewed or for
// half an hour. A machine that has not is stuck.
func (w *world) heal() string {
	for _, late := range w.late {
		late()
	}
	w.late = nil
	for _, m := range w.hosts {
		m.cut, m.asleep, m.renewed = false, 0, 0
	}
	stuck := true
	for turn := 0; turn < 1800 && stuck; turn++ {
		w.pass(time.Second)
		stuck = false
		for _, m := range w.hosts {
			if !m.off {
				m.next()
				stuck = stuck || m.renewed == 0
			}
		}
		if wrong := w.wrong(); wrong != "" {
			return wrong
		}
	}
	return ""
}

func (w *world) stop() {
	for _, m := range w.hosts {
		m.kill()
	}
}

const runs = 1000

func TestNeverTwoHostsAndNobodyIsStuck(t *testing.T) {
	restarts := 0
	for seed := range uint64(runs) {
		w := newWorld(seed)
		wrong := w.run(1000)
		if wrong == "" {
			wrong = w.heal()
		}
		for _, m := range w.hosts {
			if wrong == "" && m.renewed == 0 {
				wrong = m.name + " is stuck, and says " + m.word
			}
			restarts += m.restarts
		}
		w.stop()
		if wrong != "" {
			t.Fatalf("seed %d: %s%s", seed, wrong, w.told())
		}
	}
	if restarts < runs {
		t.Errorf("hosts started anew %d times", restarts)
	}
}

// TestAHostThatStaysAwayIsSaidUntilAPersonReleasesIt has one host go for good, wherever it is.
func TestAHostThatStaysAwayIsSaidUntilAPersonReleasesIt(t *testing.T) {
	atWork := 0
	for seed := range uint64(runs) {
		w := newWorld(seed)
		wrong := w.run(200 + w.rand.IntN(100))
		gone := w.hosts[0]
		gone.off = true
		if wrong == "" {
			wrong = w.heal()
		}
		h, err := lock.Look(t.Context(), w.store)
		must.Do(t, err)
		if h != nil && h.Host == "a" {
			atWork++
			for _, m := range w.hosts[1:] {
				if !strings.HasPrefix(m.word, "the lock is held by a, which works on etcd/") {
					t.Errorf("seed %d: %s says %s", seed, m.name, m.word)
				}
			}
			must.Do(t, lock.Release{By: "root", Reason: "a is scrap"}.Apply(t.Context(), w.store, *h))
			gone.journal = "" // that is what the person answers for
			wrong = w.heal()
		}
		for _, m := range w.hosts[1:] {
			if wrong == "" && m.renewed == 0 {
				wrong = m.name + " is stuck, and says " + m.word
			}
		}
		w.stop()
		if wrong != "" {
			t.Fatalf("seed %d: %s%s", seed, wrong, w.told())
		}
	}
	if atWork < runs/20 {
		t.Errorf("the host was at work in %d of %d runs", atWork, runs)
	}
}

// TestALeaseAloneLetsTwoHostsWork is what the model is for: it finds the fault of the usual lock.
func TestALeaseAloneLetsTwoHostsWork(t *testing.T) {
	for seed := range uint64(runs) {
		w := newWorld(seed)
		w.leaseOnly = true
		wrong := w.run(1000)
		w.stop()
		if strings.HasPrefix(wrong, "two hosts at once") {
			return
		}
	}
	t.Errorf("%d runs found nothing", runs)
}
