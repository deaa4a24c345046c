// SPDX-License-Identifier: Apache-2.0

package unitactions

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/printable"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
)

// dispatch makes it durable that the outcome is unknown, and which try this is, and only then asks
// systemd: killed at any point from here on, the agent finds the action pending again, and a crash does
// not reset the retry count. Where nothing can be written, what was remembered before has to do, since the action is
// pending by that too; a full disk would else keep a host on trust that expires. The job is waited for until it
// ends, so that a slow one is never asked for twice.
func (a *Actions) dispatch(ctx context.Context, u unitplan.Unit, s *unit, in unitplan.Inputs, now unitplan.State,
	affected []string, why string) error {
	err := a.Memory.Loaded(u.Name, unitplan.Loaded{Inputs: in.Digest, Made: a.Memory.State().Units[u.Name].Made,
		Tries: s.failures + 1, Tried: a.Clock.Now().UTC()}.Outdated(now))
	a.Trail.Record(audit.Action(audit.UnitActionDispatched, u, affected, fmt.Sprintf("%s %s: %s", u.Verb, u.Name, why)).
		With(audit.Inputs, in.Digest.String()))
	s.state, s.reason, s.running, s.overdue, s.disturbed = report.Running, why, true, a.Clock.Now().Add(a.Times.Job), 0
	s.aside = nil
	go func() {
		after, err := a.Systemd.Act(ctx, u)
		a.jobs <- Job{unit: u, affected: affected, inputs: in, after: after, err: err}
	}()
	return err
}

// watchJob reports, once, a job that takes longer than it should.
func (a *Actions) watchJob(u unitplan.Unit, s *unit) {
	if s.overdue.IsZero() || a.Clock.Now().Before(s.overdue) {
		return
	}
	s.overdue, s.state = time.Time{}, report.Overdue
	s.reason = fmt.Sprintf("the job has not ended after %v; systemd goes on with it", a.Times.Job)
	a.Trail.Record(audit.Action(audit.UnitActionOverdue, u, nil, fmt.Sprintf("%s %s: %s", u.Verb, u.Name, s.reason)))
}

// Ended ends the action, or keeps it pending. What the unit has loaded by it is seen at the next look: see confirm.
func (a *Actions) Ended(j Job) {
	s := a.unit(j.unit.Name)
	s.running, s.due = false, time.Time{}
	if at := postponed(j.err); !at.IsZero() {
		a.postpone(j, s, at)
		return
	}
	if j.err != nil {
		a.retryLater(j, s)
		return
	}
	a.counter.Succeeded++
	*s = unit{state: report.Unknown, reason: "its job is done", lastDone: a.Clock.Now(), disturbed: s.disturbed, done: &j}
	message := fmt.Sprintf("%s %s done", j.unit.Verb, j.unit.Name)
	a.Trail.Record(audit.Action(audit.UnitActionDone, j.unit, j.affected, message).
		With(audit.Inputs, j.inputs.Digest.String()))
}

// postpone has the action asked for again when whoever carries it out says. It was not tried, so it did not
// fail either.
func (a *Actions) postpone(j Job, s *unit, at time.Time) {
	s.state, s.reason, s.due = report.UnitPending, printable.Text(j.err.Error()), at
	message := fmt.Sprintf("%s %s was put off", j.unit.Verb, j.unit.Name)
	a.Trail.Record(audit.Action(audit.UnitActionFailed, j.unit, j.affected, message).With(audit.Reason, s.reason))
}

// retryLater has the action tried again after a pause, which grows with each failure until the breaker opens.
// From then on it is tried rarely, until it succeeds or the unit's inputs change. A lost bus is no failure
// of the unit.
func (a *Actions) retryLater(j Job, s *unit) {
	now := a.Clock.Now()
	a.counter.Failed++
	s.state, s.reason, s.failed = report.Failed, printable.Text(j.err.Error()), j.inputs.Digest
	s.due = now.Add(a.Backoff.Jitter(a.Backoff.Pause(s.failures + s.lost)))
	s.lost++
	if !unreachable(j.err) {
		s.failures, s.lost = s.failures+1, 0
	}
	message := fmt.Sprintf("%s %s did not succeed", j.unit.Verb, j.unit.Name)
	a.Trail.Record(audit.Action(audit.UnitActionFailed, j.unit, j.affected, message).With(audit.Reason, s.reason))
	if s.failures < maxFailures {
		return
	}
	a.forgetMade(j.unit)
	s.state, s.due = report.BreakerOpen, now.Add(a.Backoff.Jitter(a.Times.Breaker))
	if denied(j.err) { // to ask disturbs nobody, and the configuration may be right by then
		s.due = now.Add(a.Backoff.Jitter(a.Backoff.Max))
	}
	if s.opened.IsZero() {
		s.opened = now
		message := fmt.Sprintf("%s %s failed %d times in a row; it is tried again when its files change, "+
			"and rarely until then", j.unit.Verb, j.unit.Name, s.failures)
		a.Trail.Record(audit.Action(audit.UnitBreaker, j.unit, j.affected, message).With(audit.Reason, s.reason))
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
