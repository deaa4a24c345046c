// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/clock"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// unit is what the loop knows of one allowlisted unit beyond its durable memory.
type unit struct {
	state  string // as report.Unit.State
	reason string
	due    time.Time // when the owed action may be carried out; zero if nothing is owed
	again  time.Time // when an owed action is looked at again although nothing happens; zero: never
	paid   time.Time

	running   bool
	overdue   time.Time     // when a running job will have taken too long
	disturbed time.Duration // the uptime when its files were written last, if that was since it was dispatched
	done      *job          // the last, as long as it is not known what the unit has loaded by it

	failures int         // in a row, with the same inputs
	failed   plan.Digest // those inputs
	lost     int         // how often in a row the bus was, instead
	opened   time.Time   // when the breaker opened; zero while it is closed
	aside    *unit       // what failed with other inputs, as long as these were not tried
}

// settle asks for each unit whether it has loaded what is on disk, and dispatches what is owed and
// due (step 5 of the flow). A unit that cannot be asked about does not hold up the others, and a file that
// is in doubt only those units that read it.
func (l *loop) settle(ctx context.Context) error {
	if l.observed == nil {
		l.lookAway()
		return nil
	}
	doubts := plan.Doubts(l.desired.Entries, l.entries, l.observed, l.unsynced)
	var first error
	for _, u := range l.Policy.InOrder() {
		if err := l.settleUnit(ctx, u, doubts); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// lookAway is settle while nobody can say what is on disk.
func (l *loop) lookAway() {
	for _, s := range l.units {
		if s.state == "loaded" {
			s.state, s.reason = "unknown", "what is on disk is not known"
		}
	}
}

func (l *loop) settleUnit(ctx context.Context, u plan.Unit, doubts map[plan.Key]string) error {
	s := l.unit(u.Name)
	if s.running {
		l.watchJob(u, s)
		return nil
	}
	s.again = time.Time{}
	now, affected, err := l.askSystemd(ctx, u)
	if err != nil {
		s.state, s.reason = "unknown", plan.Printable(err.Error())
		return fmt.Errorf("asking systemd about %s: %v", u.Name, err)
	}
	if why := u.Refuse(affected); why != "" {
		l.refuseUnit(u, s, why)
		return nil
	}
	in := plan.InputsOf(u.Name, l.Policy, l.observed, l.known.contents, doubts)
	err = l.confirm(ctx, u, s)
	loaded, known := l.memory.State().Units[u.Name]
	if err != nil && loaded.Unknown { // its job is done: it has only to be asked who loads what it made
		s.state, s.reason = "unknown", plan.Printable(err.Error())
		return err
	}
	run := now.AsOf(l.Clock.Now(), l.Clock.Uptime())
	d := plan.Owed(u, run, in, loaded, known)
	if d.Outdated {
		err = cmp.Or(l.outdate(u, run, in), err)
	}
	switch d.Action {
	case plan.Wait:
		s.state, s.reason = "unknown", d.Why
		return err
	case plan.Act:
		if !l.isDue(u, s, in, d) || l.putOff(ctx, u, s, now, affected) {
			return err
		}
		return cmp.Or(l.dispatch(ctx, u, s, in, now, affected, d.Why), err)
	case plan.Adopt:
		if maker := l.makes(u.Name); maker != "" {
			s.state, s.reason = "unknown", "waits for "+maker
			return err
		}
		l.Trail.Record(audit.Record{Kind: audit.UnitAdopted, Message: u.Name + ": " + d.Why}.
			With(audit.Unit, u.Name).With(audit.Inputs, in.Digest.String()))
		if err = l.load(ctx, u, in, now); err != nil {
			s.state, s.reason = "unknown", plan.Printable(err.Error())
			return err
		}
	}
	*s = unit{state: "loaded", reason: d.Why, paid: s.paid}
	if !now.Exists || !now.Active && u.Verb != plan.Restart {
		s.state = "not running"
	}
	return err
}

// outdate remembers that a run of a unit has not loaded what is on disk.
func (l *loop) outdate(u plan.Unit, run plan.UnitState, in plan.Inputs) error {
	loaded, known := l.memory.State().Units[u.Name]
	if run.MayYetLoad(in) {
		run = plan.UnitState{}
	}
	if u.Verb == plan.Restart {
		loaded.Made = loaded.MadeOf(known, in, l.booted())
	}
	return l.memory.Loaded(u.Name, loaded.Outdated(run))
}

// unit is what is known of an allowlisted unit, to be changed.
func (l *loop) unit(name string) *unit {
	s := l.units[name]
	if s == nil {
		s = &unit{}
		l.units[name] = s
	}
	return s
}

// askSystemd is all that systemd has to say before a decision.
func (l *loop) askSystemd(ctx context.Context, u plan.Unit) (now plan.UnitState, affected []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, busTimeout)
	defer cancel()
	if now, err = l.Units.State(ctx, u.Name); err != nil || !now.Exists {
		return now, nil, err
	}
	affected, err = l.Units.Affected(ctx, u)
	return now, affected, err
}

// reviewUnits says what the allowlist will not do although there is nothing to do yet. What cannot be
// asked now is asked before each action anyway. A job may be under way, if what asked for it was taken back.
func (l *loop) reviewUnits(ctx context.Context) {
	for _, u := range l.Policy.Units {
		if s := l.units[u.Name]; s != nil && s.running {
			l.watchJob(u, s)
			continue
		}
		if _, affected, err := l.askSystemd(ctx, u); err == nil {
			if why := u.Refuse(affected); why != "" {
				l.refuseUnit(u, l.unit(u.Name), why)
			}
		}
	}
}

// refuseUnit keeps an action from being asked for that would act on units nobody allowed.
func (l *loop) refuseUnit(u plan.Unit, s *unit, why string) {
	if s.reason != why {
		l.Trail.Record(audit.Action(audit.UnitRefused, u, nil, why))
	}
	*s = unit{state: "refused", reason: why, paid: s.paid}
}

// isDue waits until the owed action is due: first for more changes to come, then for this node's place
// in the fleet's spread; and after failures, for the pause that follows them. Other content may fare
// better and starts anew; if it goes again before it was tried, all is as before.
func (l *loop) isDue(u plan.Unit, s *unit, in plan.Inputs, d plan.Decision) bool {
	if s.failures > 0 && s.failed != in.Digest {
		before := *s
		*s = unit{paid: s.paid, aside: &before}
	}
	if s.aside != nil && s.aside.failed == in.Digest {
		*s = *s.aside
	}
	if s.due.IsZero() || s.state == "unknown" {
		s.state, s.reason = "owed", d.Why
		if !s.opened.IsZero() {
			s.state = "breaker open"
		}
	}
	if p := l.desired.Paused; p != "" {
		s.reason, s.due = "paused: "+plan.Printable(p), time.Time{}
		return false
	}
	now := l.Clock.Now()
	if s.due.IsZero() {
		s.due = now.Add(l.Times.Coalesce)
		if u.Verb == plan.TryRestart {
			s.due = s.due.Add(clock.Place(l.Node, u.Name, l.Times.Spread))
		}
		if l.desired.Now {
			s.due = now // the operator waits for it
		}
	}
	s.again = s.due
	return !now.Before(s.due)
}

// putOff finds what the action has to wait for although it is due: a job that systemd has already, be
// it ours of before a crash; a oneshot that makes what the unit loads; the start limits of the unit
// and of those that start along with it. Every pass asks again. That time alone brings one up takes the longer
// the longer it has waited: the end of our own jobs is announced, and others may never end.
func (l *loop) putOff(ctx context.Context, u plan.Unit, s *unit, now plan.UnitState, affected []string) bool {
	later := func(t time.Time, why string) bool {
		s.again, s.reason = t, why
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, busTimeout)
	defer cancel()
	t := l.Clock.Now()
	patience := t.Add(min(max(t.Sub(s.due), l.Times.RetryMin), l.Times.RetryMax))
	if now.Busy {
		return later(patience, "systemd has a job for it that has not ended")
	}
	if maker := l.makes(u.Name); maker != "" {
		return later(patience, "waits for "+maker)
	}
	if !u.Verb.Starts() {
		return false
	}
	up := l.Clock.Uptime()
	next := now.ForLimit(t, up).NextStart(t)
	for _, name := range affected {
		// One that cannot be asked about has to take care of itself.
		if other, err := l.Units.State(ctx, name); err == nil && other.ForLimit(t, up).NextStart(t).After(next) {
			next = other.ForLimit(t, up).NextStart(t)
		}
	}
	if next.After(t) {
		return later(next, "its start limit is near: waits until "+next.UTC().Format(time.TimeOnly))
	}
	return false
}

// makes names a oneshot that has yet to make what the unit loads.
func (l *loop) makes(unit string) string {
	for _, maker := range l.Policy.Makers(unit) {
		if m := l.units[maker]; m != nil && m.pending() {
			return maker
		}
	}
	return ""
}

// pending tells whether waiting for the unit makes sense.
func (s *unit) pending() bool {
	return s.running || s.state == "owed" || s.state == "unknown" || s.state == "failed"
}

// waitsFor names a unit that has yet to load the row's file.
func (l *loop) waitsFor(row plan.Row) string {
	for _, name := range row.OnChange {
		if u := l.units[name]; u != nil && u.state != "loaded" && u.state != "not running" {
			return name + " has yet to act"
		}
	}
	return ""
}
