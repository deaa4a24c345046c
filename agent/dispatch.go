// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
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
// than if it had lived. The job is waited for until it ends, so that a slow one is never asked for twice.
func (l *loop) dispatch(ctx context.Context, u plan.Unit, s *unit, in plan.Inputs, affected []string, why string) error {
	if err := l.remember(u.Name, plan.Loaded{Inputs: in.Digest, Unknown: true, Tries: s.failures + 1, Tried: l.Clock.Now().UTC()}); err != nil {
		return err
	}
	l.Trail.Record(action(audit.UnitDispatched, u, affected, fmt.Sprintf("%s %s: %s", u.Verb, u.Name, why)).
		With(audit.Inputs, in.Digest.String()))
	s.state, s.reason, s.running, s.overdue = "running", why, true, l.Clock.Now().Add(l.Times.Job)
	go func() {
		after, err := l.Units.Act(ctx, u)
		l.jobs <- job{unit: u, affected: affected, inputs: in, after: after, err: err}
	}()
	return nil
}

// watchJob reports, once, a job that takes longer than it should.
func (l *loop) watchJob(u plan.Unit, s *unit) {
	if s.overdue.IsZero() || l.Clock.Now().Before(s.overdue) {
		return
	}
	s.overdue, s.state = time.Time{}, "overdue"
	s.reason = fmt.Sprintf("the job has not ended after %v; systemd goes on with it", l.Times.Job)
	l.Trail.Record(action(audit.UnitOverdue, u, nil, fmt.Sprintf("%s %s: %s", u.Verb, u.Name, s.reason)))
}

// ended pays the action, or keeps it owed.
func (l *loop) ended(j job) {
	s := l.unit(j.unit.Name)
	s.running, s.due = false, time.Time{}
	if j.err == nil {
		j.err = l.remember(j.unit.Name, plan.Loaded{Inputs: j.inputs.Digest, Rows: j.inputs.Digests(), Boot: j.after.Boot, Invocation: j.after.Invocation})
	}
	if j.err != nil {
		l.unpaid(j, s)
		return
	}
	l.actions.Paid++
	*s = unit{state: "loaded", paid: l.Clock.Now()}
	l.Trail.Record(action(audit.UnitPaid, j.unit, j.affected, fmt.Sprintf("%s %s done", j.unit.Verb, j.unit.Name)).
		With(audit.Inputs, j.inputs.Digest.String()))
}

// unpaid has the action tried again after a pause, which grows with each failure until the breaker opens.
// From then on it is tried rarely, until it succeeds or the unit's inputs change. A lost bus is no failure
// of the unit.
func (l *loop) unpaid(j job, s *unit) {
	now := l.Clock.Now()
	l.actions.Failed++
	s.state, s.reason, s.failed = "failed", plan.Printable(j.err.Error()), j.inputs.Digest
	s.due = now.Add(l.jitter(backoff(l.Times, s.failures)))
	if !unreachable(j.err) {
		s.failures++
	}
	l.Trail.Record(action(audit.UnitFailed, j.unit, j.affected, fmt.Sprintf("%s %s did not succeed", j.unit.Verb, j.unit.Name)).
		With(audit.Reason, s.reason))
	if s.failures < maxFailures {
		return
	}
	s.state, s.due = "breaker open", now.Add(l.jitter(l.Times.Breaker))
	if denied(j.err) { // to ask disturbs nobody, and the rule may be written by then
		s.due = now.Add(l.jitter(l.Times.RetryMax))
	}
	if s.opened.IsZero() {
		s.opened = now
		l.Trail.Record(action(audit.UnitBreaker, j.unit, j.affected, fmt.Sprintf("%s %s failed %d times in a row; it is tried again when its files change, and rarely until then",
			j.unit.Verb, j.unit.Name, s.failures)).With(audit.Reason, s.reason))
	}
}

// recall goes on where an agent that died stopped counting. What it did not see the end of counts as failed:
// who dies of an action must not repeat it for ever.
func (l *loop) recall() {
	now := l.Clock.Now()
	for _, u := range l.Policy.Units {
		m := l.memory.Units[u.Name]
		if m.Tries == 0 {
			continue
		}
		if m.Tried.After(now) { // the clock was set back
			m.Tried = now
		}
		s := l.unit(u.Name)
		s.failures, s.failed = m.Tries, m.Inputs
		s.state, s.reason = "owed", fmt.Sprintf("before this start: tried %s, and not seen to succeed", count(m.Tries, "time"))
		pause := backoff(l.Times, m.Tries-1)
		if m.Tries >= maxFailures {
			s.state, s.opened, pause = "breaker open", m.Tried, l.Times.Breaker
		}
		s.due = now.Add(l.jitter(pause) - now.Sub(m.Tried)) // with a monotonic reading, which what is remembered has not
	}
}

// forgive is for an orderly end: whoever stops or configures the agent may have repaired what failed. Only
// one that dies leaves its count behind.
func (l *loop) forgive() {
	units, tried := maps.Clone(l.memory.Units), false
	for name, m := range units {
		tried = tried || m.Tries > 0
		m.Tries, m.Tried = 0, time.Time{}
		units[name] = m
	}
	if !tried {
		return
	}
	l.memory.Units = units
	if err := l.Store.Save(l.memory); err != nil {
		l.Log.Warn("forgetting failed actions", zap.Error(err))
	}
}

// unreachable tells a failure to ask from a failure of what was asked for.
func unreachable(err error) bool {
	var lost interface{ Unreachable() bool }
	return errors.As(err, &lost) && lost.Unreachable()
}

func denied(err error) bool {
	var no interface{ Denied() bool }
	return errors.As(err, &no) && no.Denied()
}

func action(kind audit.Kind, u plan.Unit, affected []string, message string) audit.Record {
	return audit.Record{Kind: kind, Message: message}.
		With(audit.Unit, u.Name).With(audit.Verb, string(u.Verb)).With(audit.AlsoAffects, strings.Join(affected, "\n"))
}

// remember makes what a unit has loaded durable.
func (l *loop) remember(name string, loaded plan.Loaded) error {
	before, had := l.memory.Units[name]
	l.memory.Units[name] = loaded
	if err := l.Store.Save(l.memory); err != nil {
		if delete(l.memory.Units, name); had {
			l.memory.Units[name] = before
		}
		return err
	}
	return nil
}
