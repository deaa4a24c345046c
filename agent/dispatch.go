// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/state"
)

const (
	// busTimeout bounds what systemd answers at once.
	busTimeout = 10 * time.Second
	// maxFailures of one action in a row open the unit's breaker.
	maxFailures = 5
)

// job is the end of a dispatched action.
type job struct {
	unit     plan.Unit
	affected []string
	inputs   plan.Inputs
	after    plan.UnitState
	err      error
}

// dispatch makes it durable that the outcome is unknown, and which try this is, and only then asks
// systemd: killed at any point from here on, the agent finds the action owed again, and is no more eager
// than if it had lived. Where nothing can be written, what was remembered before has to do, since the action is
// owed by that too; a full disk would else keep a host on trust that expires. The job is waited for until it
// ends, so that a slow one is never asked for twice.
func (l *loop) dispatch(ctx context.Context, u plan.Unit, s *unit, in plan.Inputs, now plan.UnitState,
	affected []string, why string) error {
	err := l.memory.Loaded(u.Name, plan.Loaded{Inputs: in.Digest, Made: l.memory.State().Units[u.Name].Made,
		Tries: s.failures + 1, Tried: l.Clock.Now().UTC()}.Outdated(now))
	l.Trail.Record(audit.Action(audit.UnitDispatched, u, affected, fmt.Sprintf("%s %s: %s", u.Verb, u.Name, why)).
		With(audit.Inputs, in.Digest.String()))
	s.state, s.reason, s.running, s.overdue, s.disturbed = "running", why, true, l.Clock.Now().Add(l.Times.Job), 0
	s.aside = nil
	go func() {
		after, err := l.Units.Act(ctx, u)
		l.jobs <- job{unit: u, affected: affected, inputs: in, after: after, err: err}
	}()
	return err
}

// watchJob reports, once, a job that takes longer than it should.
func (l *loop) watchJob(u plan.Unit, s *unit) {
	if s.overdue.IsZero() || l.Clock.Now().Before(s.overdue) {
		return
	}
	s.overdue, s.state = time.Time{}, "overdue"
	s.reason = fmt.Sprintf("the job has not ended after %v; systemd goes on with it", l.Times.Job)
	l.Trail.Record(audit.Action(audit.UnitOverdue, u, nil, fmt.Sprintf("%s %s: %s", u.Verb, u.Name, s.reason)))
}

// ended pays the action, or keeps it owed. What the unit has loaded by it is seen at the next look: see confirm.
func (l *loop) ended(j job) {
	s := l.unit(j.unit.Name)
	s.running, s.due = false, time.Time{}
	if at := postponed(j.err); !at.IsZero() {
		l.postpone(j, s, at)
		return
	}
	if j.err != nil {
		l.unpaid(j, s)
		return
	}
	l.actions.Paid++
	*s = unit{state: "unknown", reason: "its job is done", paid: l.Clock.Now(), disturbed: s.disturbed, done: &j}
	l.Trail.Record(audit.Action(audit.UnitPaid, j.unit, j.affected, fmt.Sprintf("%s %s done", j.unit.Verb, j.unit.Name)).
		With(audit.Inputs, j.inputs.Digest.String()))
}

// confirm remembers what a unit has loaded by a job that is done. If its files were touched between the dispatch
// and the end there is no telling, whatever they hold now: it stays unknown, and the action is owed once more. That the
// run began before we wrote them is known by a clock that nobody sets. A repair or a write that is still to come says
// nothing of what was loaded; that nobody could look does.
func (l *loop) confirm(ctx context.Context, u plan.Unit, s *unit) error {
	j := s.done
	in := plan.InputsOf(u.Name, l.Policy, l.observed, l.known.contents, plan.Doubts(nil, nil, l.observed, nil))
	if j == nil || l.unseen(u.Name) || in.Doubt != "" {
		return nil
	}
	if s.disturbed > 0 || !in.Untouched(j.inputs) {
		s.done = nil
		if began := j.after.SinceUptime; began > 0 && began < s.disturbed {
			return l.memory.Loaded(u.Name, l.memory.State().Units[u.Name].Outdated(j.after))
		}
		return nil
	}
	err := l.load(ctx, u, in, j.after)
	if err == nil {
		s.done = nil
	}
	return err
}

// unseen tells whether a commit of what the unit reads failed, and nobody could look since what it did.
func (l *loop) unseen(unit string) bool {
	return l.blind && slices.ContainsFunc(l.Policy.Rows, func(r plan.Row) bool {
		return l.failing[r.ID] && slices.Contains(r.OnChange, unit)
	})
}

// load remembers that a run of a unit has loaded what is on disk. If it is a oneshot that made something new of it,
// those that load that have not, and that is remembered at once.
func (l *loop) load(ctx context.Context, u plan.Unit, in plan.Inputs, run plan.UnitState) error {
	before, known := l.memory.State().Units[u.Name]
	now := plan.Loaded{Inputs: in.Digest, Rows: in.Digests(), Boot: run.Boot, Invocation: run.Invocation}
	if u.Verb != plan.Restart {
		return l.memory.Loaded(u.Name, now)
	}
	if now.Made = in.Digest; before.MadeOf(known, in, l.booted()) == in.Digest {
		return l.memory.Loaded(u.Name, now)
	}
	ctx, cancel := context.WithTimeout(ctx, busTimeout)
	defer cancel()
	for _, other := range l.Policy.Units {
		if !slices.Contains(l.Policy.Makers(other.Name), u.Name) {
			continue
		}
		s, err := l.Units.State(ctx, other.Name)
		if err != nil {
			return fmt.Errorf("asking systemd about %s: %v", other.Name, err)
		}
		l.memory.Note(func(m *state.State) { m.Units[other.Name] = m.Units[other.Name].Outdated(s) })
		l.unit(other.Name).disturbed = l.Clock.Uptime()
	}
	return l.memory.Loaded(u.Name, now)
}

// booted is when the host was, by its clock.
func (l *loop) booted() time.Time { return l.Clock.Now().Add(-l.Clock.Uptime()) }

// disturb notes, before p is carried out, of which units it can no longer be known what they have loaded: of those that
// are reloaded and of which p writes over what somebody else left in a file, since they may have been reloaded with
// that; and of those of which it removes a file and of whose run nothing else is known, since a removal leaves no time
// behind by which it could be told later that the run began before it. It gives what will be observed then.
func (l *loop) disturb(ctx context.Context, p plan.Plan) plan.Observed {
	after, written := maps.Clone(l.observed), make(plan.Observed, len(p.Writes))
	for _, w := range p.Writes {
		l.known.wrote(w.Entry)
		written[w.Key] = plan.File{Kind: plan.Regular, Digest: w.Digest} // when it changed the next look tells
	}
	l.merge(after, written)
	for _, r := range p.Removes {
		delete(after, r.Key)
	}
	unknown := false
	for _, u := range l.Policy.Units {
		was := plan.InputsOf(u.Name, l.Policy, l.observed, l.known.contents, nil)
		will := plan.InputsOf(u.Name, l.Policy, after, l.known.contents, nil)
		m, known := l.memory.State().Units[u.Name]
		if was.Digest == will.Digest {
			continue
		}
		if known && u.Verb == plan.Reload && l.mends(p, u.Name) {
			m.Unknown, unknown = true, true
			l.memory.Note(func(s *state.State) { s.Units[u.Name] = m })
		}
		if !l.removes(p, u.Name) {
			continue
		}
		if now, _, err := l.askSystemd(ctx, u); err == nil && now.Exists && (m.Unknown || !m.In(now)) {
			l.memory.Note(func(s *state.State) { s.Units[u.Name] = m.Outdated(now) })
			unknown = true
		}
	}
	if unknown {
		_ = l.memory.Save() // the repair does not wait for it
	}
	return after
}

// removes tells whether p removes a file that the unit reads.
func (l *loop) removes(p plan.Plan, unit string) bool {
	return slices.ContainsFunc(p.Removes, func(r plan.Removal) bool {
		row, _ := l.Policy.Row(r.Row)
		return slices.Contains(row.OnChange, unit)
	})
}

// see takes in what is on disk after a commit. Of a unit with a job under way of which files were written or removed
// it can no longer be known what it has loaded. A commit that failed may have done that or not.
func (l *loop) see(o plan.Observed) {
	for _, u := range l.Policy.Units {
		was := plan.InputsOf(u.Name, l.Policy, l.observed, l.known.contents, nil)
		is := plan.InputsOf(u.Name, l.Policy, o, l.known.contents, nil)
		if s := l.units[u.Name]; s != nil && !is.Untouched(was) {
			s.disturbed = l.Clock.Uptime()
		}
	}
	l.observed = o
}

// mends tells whether p writes over what somebody else left in a file that the unit reads.
func (l *loop) mends(p plan.Plan, unit string) bool {
	return slices.ContainsFunc(p.Writes, func(w plan.Write) bool {
		row, _ := l.Policy.Row(w.Row)
		return slices.Contains(row.OnChange, unit) && !l.ours(w)
	})
}

// ours tells whether w writes over what we left there: in this life, or as a claim or the last good version says.
func (l *loop) ours(w plan.Write) bool {
	if left, ok := l.quarrels.left[w.Key]; ok {
		return w.Before == left
	}
	if slices.Contains(l.memory.State().Owned[w.Path].Digests, w.Before) {
		return true
	}
	left, good := plan.Digest{}, l.memory.State().LastGood
	if i := slices.IndexFunc(good, func(r state.Remembered) bool { return r.Key == w.Key }); i >= 0 {
		left = good[i].Digest
	}
	return w.Before == left
}

// postpone has the action asked for again when whoever carries it out says. It was not tried, so it did not
// fail either.
func (l *loop) postpone(j job, s *unit, at time.Time) {
	s.state, s.reason, s.due = "owed", plan.Printable(j.err.Error()), at
	l.Trail.Record(audit.Action(audit.UnitFailed, j.unit, j.affected, fmt.Sprintf("%s %s was put off", j.unit.Verb, j.unit.Name)).
		With(audit.Reason, s.reason))
}

// unpaid has the action tried again after a pause, which grows with each failure until the breaker opens.
// From then on it is tried rarely, until it succeeds or the unit's inputs change. A lost bus is no failure
// of the unit.
func (l *loop) unpaid(j job, s *unit) {
	now := l.Clock.Now()
	l.actions.Failed++
	s.state, s.reason, s.failed = "failed", plan.Printable(j.err.Error()), j.inputs.Digest
	s.due = now.Add(l.backoff.Jitter(l.backoff.Pause(s.failures + s.lost)))
	if s.lost++; !unreachable(j.err) {
		s.failures, s.lost = s.failures+1, 0
	}
	l.Trail.Record(audit.Action(audit.UnitFailed, j.unit, j.affected, fmt.Sprintf("%s %s did not succeed", j.unit.Verb, j.unit.Name)).
		With(audit.Reason, s.reason))
	if s.failures < maxFailures {
		return
	}
	l.unmade(j.unit)
	s.state, s.due = "breaker open", now.Add(l.backoff.Jitter(l.Times.Breaker))
	if denied(j.err) { // to ask disturbs nobody, and the configuration may be right by then
		s.due = now.Add(l.backoff.Jitter(l.Times.RetryMax))
	}
	if s.opened.IsZero() {
		s.opened = now
		l.Trail.Record(audit.Action(audit.UnitBreaker, j.unit, j.affected, fmt.Sprintf("%s %s failed %d times in a row; it is tried again when its files change, and rarely until then",
			j.unit.Verb, j.unit.Name, s.failures)).With(audit.Reason, s.reason))
	}
}

// unmade forgets what a oneshot is thought to have made, once nobody waits for it any more: those that load that may
// start now with whatever its failed runs left.
func (l *loop) unmade(u plan.Unit) {
	m := l.memory.State().Units[u.Name]
	if m.Made == (plan.Digest{}) {
		return
	}
	m.Made = plan.Digest{}
	if err := l.memory.Loaded(u.Name, m); err != nil {
		l.Log.Warn("forgetting what a unit made", zap.Error(err))
	}
}

// recall goes on where an agent that died stopped counting. What it did not see the end of counts as failed:
// who dies of an action must not repeat it for ever.
func (l *loop) recall() {
	now := l.Clock.Now()
	for _, u := range l.Policy.Units {
		m := l.memory.State().Units[u.Name]
		if m.Tries == 0 {
			continue
		}
		if m.Tried.After(now) { // the clock was set back
			m.Tried = now
		}
		s := l.unit(u.Name)
		s.failures, s.failed = m.Tries, m.Inputs
		s.state, s.reason = "owed", fmt.Sprintf("before this start: tried %s, and not seen to succeed", audit.Count(m.Tries, "time"))
		pause := l.backoff.Pause(m.Tries - 1)
		if m.Tries >= maxFailures {
			l.unmade(u)
			s.state, s.opened, pause = "breaker open", m.Tried, l.Times.Breaker
		}
		s.due = now.Add(l.backoff.Jitter(pause) - now.Sub(m.Tried)) // with a monotonic reading, which what is remembered has not
	}
}

// forgive is for an orderly end: whoever stops or configures the agent may have repaired what failed. Only
// one that dies leaves its count behind.
func (l *loop) forgive() {
	units, tried := maps.Clone(l.memory.State().Units), false
	for name, m := range units {
		tried = tried || m.Tries > 0
		m.Tries, m.Tried = 0, time.Time{}
		units[name] = m
	}
	if !tried {
		return
	}
	l.memory.Note(func(s *state.State) { s.Units = units })
	if err := l.memory.Save(); err != nil {
		l.Log.Warn("forgetting failed actions", zap.Error(err))
	}
}

// unreachable tells a failure to ask from a failure of what was asked for.
func unreachable(err error) bool {
	var lost interface{ Unreachable() bool }
	return errors.As(err, &lost) && lost.Unreachable()
}

// postponed is when to ask again for what comes too early; zero for any other failure.
func postponed(err error) time.Time {
	var early interface{ Postponed() time.Time }
	if !errors.As(err, &early) {
		return time.Time{}
	}
	return early.Postponed()
}

func denied(err error) bool {
	var no interface{ Denied() bool }
	return errors.As(err, &no) && no.Denied()
}
