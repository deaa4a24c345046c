// SPDX-License-Identifier: Apache-2.0

package unitactions

import (
	"context"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/clock"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/printable"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
)

// isDue waits until the pending action is due: first for more changes to come, then for this node's place
// in the fleet's spread; and after failures, for the pause that follows them. Other content may fare
// better and starts anew; if it goes again before it was tried, all is as before.
func (a *Actions) isDue(d plan.Desired, u unitplan.Unit, s *unit, in unitplan.Inputs, why string) bool {
	if s.failures > 0 && s.failed != in.Digest {
		before := *s
		*s = unit{lastDone: s.lastDone, aside: &before}
	}
	if s.aside != nil && s.aside.failed == in.Digest {
		*s = *s.aside
	}
	if s.due.IsZero() || s.state == report.Unknown {
		s.state, s.reason = report.UnitPending, why
		if !s.opened.IsZero() {
			s.state = report.BreakerOpen
		}
	}
	if p := d.Paused; p != "" {
		s.state, s.reason, s.due = report.Paused, printable.Text(p), time.Time{}
		return false
	}
	now := a.Clock.Now()
	if s.due.IsZero() {
		s.due = now.Add(a.Times.BatchWindow)
		if u.Verb == unitplan.TryRestart {
			s.due = s.due.Add(clock.Place(a.Node, u.Name, a.Times.RandomizedDelay))
		}
		if d.Now {
			s.due = now // the operator waits for it
		}
	}
	s.again = s.due
	return !now.Before(s.due)
}

// putOff finds what the action has to wait for although it is due: a job that systemd has already, be
// it ours of before a crash; a oneshot that makes what the unit loads; the start limits of the unit
// and of those that start along with it. Every reconcile asks again. That time alone brings one up takes the longer
// the longer it has waited: the end of our own jobs is announced, and others may never end.
func (a *Actions) putOff(ctx context.Context, u unitplan.Unit, s *unit, now unitplan.State, affected []string) bool {
	later := func(t time.Time, why string) bool {
		s.again, s.reason = t, why
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, busTimeout)
	defer cancel()
	t := a.Clock.Now()
	poll := t.Add(min(max(t.Sub(s.due), a.Backoff.Min), a.Backoff.Max))
	if now.Busy {
		return later(poll, "systemd has a job for it that has not ended")
	}
	if oneshot := a.pendingPrerequisite(u.Name); oneshot != "" {
		return later(poll, "waits for "+oneshot)
	}
	if !u.Verb.Starts() {
		return false
	}
	up := a.Clock.Uptime()
	next := now.ForLimit(t, up).NextStart(t)
	for _, name := range affected {
		// One that cannot be asked about has to take care of itself.
		if other, err := a.Systemd.State(ctx, name); err == nil && other.ForLimit(t, up).NextStart(t).After(next) {
			next = other.ForLimit(t, up).NextStart(t)
		}
	}
	if next.After(t) {
		return later(next, "its start limit is near: waits until "+next.UTC().Format(time.TimeOnly))
	}
	return false
}

// pendingPrerequisite names a oneshot that has yet to run before the unit loads what it makes.
func (a *Actions) pendingPrerequisite(unit string) string {
	for _, name := range a.Policy.Prerequisites(unit) {
		if s := a.units[name]; s != nil && s.pending() {
			return name
		}
	}
	return ""
}

// pending tells whether waiting for the unit makes sense.
func (s *unit) pending() bool {
	return s.running || s.state == report.UnitPending || s.state == report.Paused ||
		s.state == report.Unknown || s.state == report.Failed
}
