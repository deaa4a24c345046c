// SPDX-License-Identifier: Apache-2.0

package pending

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/cluster/approver/verdict"
)

var now = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func queue() *Queue { return NewQueue(time.Minute, 30*time.Minute) }

// order takes n requests, or all that are due.
func order(q *Queue, at time.Time, n int) (out []string) {
	for range n {
		r, ok := q.Next(at)
		if !ok {
			break
		}
		out = append(out, r)
	}
	return out
}

func TestARenewalIsNextHoweverManyFirstRequestsWait(t *testing.T) {
	q := queue()
	for i := range 5000 {
		q.Add(fmt.Sprintf("junk-%d", i), First, "token", now)
	}
	q.Add("renewal", Renewal, "agent", now)
	if got := order(q, now, 2); !slices.Contains(got, "renewal") {
		t.Errorf("of 5000 and one, the first are %v", got)
	}
}

func TestOneRequesterDelaysAnotherByOneRequest(t *testing.T) {
	for _, class := range []Class{Renewal, First} {
		q := queue()
		for i := range 5000 {
			q.Add(fmt.Sprintf("junk-%d", i), class, "token", now)
		}
		q.Add("mine", class, "another", now)
		if got := order(q, now, 2); !slices.Contains(got, "mine") {
			t.Errorf("class %d: of 5000 and one, the first are %v", class, got)
		}
	}
}

func TestRenewalsWithoutEndDoNotStarveFirstRequests(t *testing.T) {
	q := queue()
	for i := range 100 {
		q.Add(fmt.Sprintf("renewal-%d", i), Renewal, fmt.Sprintf("agent-%d", i), now)
	}
	for i := range 100 {
		q.Add(fmt.Sprintf("first-%d", i), First, fmt.Sprintf("token-%d", i), now)
	}
	got := strings.Join(order(q, now, 40), " ")
	if r, f := strings.Count(got, "renewal"), strings.Count(got, "first"); r != 30 || f != 10 {
		t.Errorf("of forty, %d are renewals and %d others", r, f)
	}
}

func TestRequestsOfOneRequesterComeInTheOrderInWhichTheyBecameDue(t *testing.T) {
	q := queue()
	for i := range 10 {
		q.Add(fmt.Sprint(i), First, "token", now.Add(time.Duration(-i)*time.Second))
	}
	if got := strings.Join(order(q, now, 100), ""); got != "9876543210" {
		t.Errorf("got %s", got)
	}
}

func TestWhatWasLeftIsJudgedAgainLaterAndLater(t *testing.T) {
	q := queue()
	q.Add("a", First, "token", now)
	at := now
	for _, wait := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
		if got := order(q, at, 2); len(got) != 1 {
			t.Fatalf("%v: got %v", at, got)
		}
		q.Left("a", at, time.Time{})
		if due := q.Due(); !due.Equal(at.Add(wait * time.Minute)) {
			t.Fatalf("due after %v, want %d minutes", due.Sub(at), wait)
		}
		if got := order(q, q.Due().Add(-time.Nanosecond), 1); got != nil {
			t.Fatalf("too early: %v", got)
		}
		at = q.Due()
	}
	// Something changed: it counts as new.
	q.Add("a", First, "token", at)
	order(q, at, 1)
	q.Left("a", at, time.Time{})
	if due := q.Due(); !due.Equal(at.Add(time.Minute)) {
		t.Errorf("after a change due after %v", due.Sub(at))
	}
}

func TestWhatMayFareBetterSoonerIsJudgedSooner(t *testing.T) {
	q := queue()
	for _, c := range []struct{ again, want time.Duration }{
		{20 * time.Second, 20 * time.Second}, {time.Hour, time.Minute}, {-time.Hour, time.Second},
	} {
		q.Add("a", First, "token", now)
		order(q, now, 1)
		q.Left("a", now, now.Add(c.again))
		if due := q.Due().Sub(now); due != c.want {
			t.Errorf("better in %v: due in %v, want %v", c.again, due, c.want)
		}
	}
}

func TestWhatChangedWhileItWasInHandIsJudgedAgain(t *testing.T) {
	q := queue()
	q.Add("a", First, "token", now)
	order(q, now, 1)
	q.Add("a", First, "token", now)
	q.Left("a", now, time.Time{})
	if got := order(q, now, 2); len(got) != 1 {
		t.Errorf("got %v", got)
	}
}

func TestWhatIsPutOffIsNoLaterForIt(t *testing.T) {
	q := queue()
	q.Add("a", First, "token", now)
	for i := range 10 {
		at := now.Add(time.Duration(i) * time.Minute)
		if got := order(q, at, 1); len(got) != 1 {
			t.Fatalf("round %d: got %v", i, got)
		}
		q.Defer("a", at.Add(time.Minute))
	}
}

func TestWhatFailedIsTriedAgainSoonAndWithoutEnd(t *testing.T) {
	q := queue()
	q.Add("a", First, "token", now)
	at := now
	for i := range 100 {
		if got := order(q, at, 1); len(got) != 1 {
			t.Fatalf("try %d: got %v", i, got)
		}
		q.Failed("a", at)
		if wait := q.Due().Sub(at); wait < 100*time.Millisecond || wait > time.Minute {
			t.Fatalf("try %d: the next is in %v", i, wait)
		}
		at = q.Due()
	}
}

func TestWhatIsGoneOrDoneIsNotJudged(t *testing.T) {
	q := queue()
	q.Add("gone", First, "token", now)
	q.Add("late", First, "token", now.Add(time.Minute))
	q.Add("in hand", Renewal, "agent", now)
	q.Next(now)
	for _, name := range []string{"gone", "late", "in hand", "never there"} {
		q.Drop(name)
	}
	q.Left("in hand", now, time.Time{})
	q.Failed("in hand", now)
	if got := order(q, now.Add(time.Hour), 10); got != nil || !q.Due().IsZero() {
		t.Errorf("got %v, due %v", got, q.Due())
	}
	q.Add("done", First, "token", now)
	order(q, now, 1)
	if got := order(q, now.Add(time.Hour), 10); got != nil {
		t.Errorf("got %v", got)
	}
}

func TestWhoWaitsForWorkIsWoken(t *testing.T) {
	q := queue()
	q.Add("a", First, "token", now)
	select {
	case <-q.Wake():
	default:
		t.Error("not woken")
	}
	q.Add("b", First, "token", now)
	q.Add("c", First, "token", now) // nobody is there to be woken, and this does not wait
}

// FuzzQueue holds that nothing is lost and nothing judged twice, whatever the order of events.
func FuzzQueue(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5})
	f.Fuzz(func(t *testing.T, events []byte) {
		q, at := queue(), now
		waits, may := map[string]bool{}, map[string]bool{}
		hand := ""
		for _, e := range events {
			name := fmt.Sprint(e >> 4 & 3)
			switch e & 7 {
			case 0, 1:
				q.Add(name, Class(e>>6&1), fmt.Sprint(e>>5&1), at)
				waits[name] = true
			case 2:
				q.Drop(name)
				delete(waits, name)
				delete(may, name)
			case 3:
				q.Left(hand, at, time.Time{})
				may[hand] = true
			case 4:
				q.Failed(hand, at)
				may[hand] = true
			case 5:
				at = at.Add(time.Second)
			default:
				got, ok := q.Next(at)
				if ok && !waits[got] && !may[got] {
					t.Fatalf("%s was not waiting", got)
				}
				hand = got
				delete(waits, got)
				delete(may, got)
			}
		}
		all := order(q, at, 100)
		for name := range waits {
			if !slices.Contains(all, name) {
				t.Errorf("%s is lost", name)
			}
		}
		slices.Sort(all)
		if n := len(all); len(slices.Compact(all)) != n {
			t.Errorf("twice: %v", all)
		}
	})
}

func TestWhoHasUsedUpHisShareWaitsForTheNextRound(t *testing.T) {
	b := NewBudget(20, time.Minute)
	for i := range 20 {
		if at := b.Free("token", now); !at.Equal(now) {
			t.Fatalf("request %d waits until %v", i, at)
		}
		b.Take("token", now.Add(time.Duration(i)*time.Millisecond))
	}
	if at := b.Free("token", now.Add(time.Second)); !at.Equal(now.Add(time.Minute)) {
		t.Errorf("one more waits until %v", at)
	}
	if at := b.Free("another", now); !at.Equal(now) {
		t.Errorf("another waits until %v", at)
	}
	if at := b.Free("token", now.Add(time.Minute)); !at.Equal(now.Add(time.Minute)) {
		t.Errorf("in the next round it waits until %v", at)
	}
}

func TestABudgetForgetsWhoAsksNoMore(t *testing.T) {
	b := NewBudget(20, time.Minute)
	for i := range 100000 {
		b.Take(fmt.Sprint(i), now.Add(time.Duration(i)*time.Second))
	}
	if n := len(b.rounds); n > 5000 {
		t.Errorf("remembers %d", n)
	}
}

func request(name, user, node string, second int) Request {
	return Request{Name: name, Requester: user, Made: now.Add(time.Duration(second) * time.Second),
		Claim: &verdict.Claim{Request: name, User: user, Node: node}}
}

func TestOfSeveralRequestsOfOneRequesterForOneNodeTheNewestIsKnown(t *testing.T) {
	x := NewIndex()
	a, b, c := request("a", "u", "n", 1), request("b", "u", "n", 2), request("c", "u", "n", 2)
	for _, r := range []Request{b, a, c, request("d", "v", "n", 3), request("e", "u", "m", 3)} {
		x.Put(r)
	}
	for _, w := range []struct {
		r    Request
		want string
	}{{a, "c"}, {b, "c"}, {c, ""}} {
		if got := x.Newer(w.r); got != w.want {
			t.Errorf("newer than %s is %q, want %q", w.r.Name, got, w.want)
		}
	}
	if heir, ok := x.Drop("c", ""); !ok || heir != "b" {
		t.Errorf("after c the newest is %q", heir)
	}
	if heir, ok := x.Drop("a", ""); !ok || heir != "" {
		t.Errorf("an old one that goes makes %q the newest", heir)
	}
	if got := x.Newer(a); got != "b" {
		t.Errorf("newer than a is now %q", got)
	}
	if heir, ok := x.Drop("b", ""); !ok || heir != "" || x.Newer(a) != "" {
		t.Errorf("of none the newest is %q", heir)
	}
}

func TestTheRequestsOfANodeAreFound(t *testing.T) {
	x := NewIndex()
	x.Put(request("a", "u", "n", 1))
	x.Put(request("b", "v", "n", 1))
	x.Put(request("c", "u", "m", 1))
	x.Put(Request{Name: "d", Requester: "u"}) // one that is no claim
	if got := slices.Sorted(slices.Values(x.OfNode("n"))); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("got %v", got)
	}
	x.Drop("a", "")
	if _, ok := x.Drop("b", "another of its name"); ok {
		t.Error("another object than was meant is dropped")
	}
	x.Put(request("b", "v", "m", 1)) // another object under the name
	if got := x.OfNode("n"); len(got) != 0 {
		t.Errorf("got %v", got)
	}
	if r, ok := x.Get("b"); !ok || r.Claim.Node != "m" || x.Len() != 3 {
		t.Errorf("got %+v of %d", r, x.Len())
	}
	if len(x.nodes) != 1 || len(x.newest) != 2 {
		t.Errorf("remembers %d nodes and %d pairs", len(x.nodes), len(x.newest))
	}
}

// TestAFloodIsLookedUpInTimeThatDoesNotGrowWithIt counts work: requests that are compared.
func TestAFloodIsLookedUpInTimeThatDoesNotGrowWithIt(t *testing.T) {
	x := NewIndex()
	var all []Request
	for i := range 5000 {
		r := request(fmt.Sprintf("%05d", i), "token", "n", i)
		x.Put(r)
		all = append(all, r)
	}
	before := x.compared
	for _, r := range all {
		x.Newer(r)
	}
	if n := x.compared - before; n > 5000 {
		t.Errorf("5000 looks compare %d requests", n)
	}
}
