// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// unit is what the loop knows of one allowlisted unit beyond its durable memory.
type unit struct {
	state    string // as report.Unit.State
	reason   string
	due      time.Time // when the owed action is dispatched; zero if nothing is owed
	running  bool
	failures int
	paid     time.Time
}

// job is the end of a dispatched action.
type job struct {
	unit   plan.Unit
	inputs plan.Digest
	after  plan.UnitState
	err    error
}

// settle asks for each unit whether it has loaded what is on disk, and dispatches what is owed and
// due (step 5 of the flow). A unit that cannot be asked about does not hold up the others.
func (l *loop) settle(ctx context.Context) error {
	var first error
	for _, u := range l.Policy.Units {
		if err := l.settleUnit(ctx, u); err != nil && first == nil {
			first = err
		}
	}
	return first
}

func (l *loop) settleUnit(ctx context.Context, u plan.Unit) error {
	s := l.units[u.Name]
	if s == nil {
		s = &unit{}
		l.units[u.Name] = s
	}
	if s.running {
		return nil
	}
	now, err := l.Units.State(ctx, u.Name)
	if err != nil {
		s.state, s.reason = "unknown", err.Error()
		return fmt.Errorf("asking systemd about %s: %v", u.Name, err)
	}
	in := plan.InputsOf(u.Name, l.Policy, l.observed)
	loaded, known := l.memory.Units[u.Name]
	d := plan.Owed(u, now, in, loaded, known)
	switch d.Action {
	case plan.Act:
		return l.owe(ctx, u, s, in, d)
	case plan.Adopt:
		if err := l.remember(u.Name, plan.Loaded{Inputs: in.Digest, Boot: now.Boot, Invocation: now.Invocation}); err != nil {
			return err
		}
		l.Trail.Record(audit.Record{Kind: audit.UnitAdopted, Message: u.Name + ": " + d.Why}.
			With(audit.Unit, u.Name).With(audit.Inputs, in.Digest.String()))
	}
	s.state, s.reason, s.due, s.failures = "loaded", d.Why, time.Time{}, 0
	if !now.Active {
		s.state = "not running"
	}
	return nil
}

// owe waits until the owed action is due: first for more changes to come, then for this node's place
// in the fleet's spread. Then it dispatches.
func (l *loop) owe(ctx context.Context, u plan.Unit, s *unit, in plan.Inputs, d plan.Decision) error {
	now := l.Clock.Now()
	if s.state != "failed" {
		s.state, s.reason = "owed", d.Why
	}
	if s.due.IsZero() {
		s.due = now.Add(l.Times.Coalesce)
		if u.Verb == plan.TryRestart {
			s.due = s.due.Add(place(l.Node, u.Name, l.Times.Spread))
		}
	}
	if now.Before(s.due) {
		return nil
	}
	return l.dispatch(ctx, u, s, in, d)
}

// dispatch makes it durable that the outcome is unknown, and only then asks systemd: killed at any
// point from here on, the agent finds the action owed again.
func (l *loop) dispatch(ctx context.Context, u plan.Unit, s *unit, in plan.Inputs, d plan.Decision) error {
	if err := l.remember(u.Name, plan.Loaded{Unknown: true}); err != nil {
		return err
	}
	l.Trail.Record(action(audit.UnitDispatched, u, fmt.Sprintf("%s %s: %s", u.Verb, u.Name, d.Why)).
		With(audit.Inputs, in.Digest.String()))
	s.state, s.running = "running", true
	go func() {
		ctx, cancel := context.WithTimeout(ctx, l.Times.Job)
		defer cancel()
		after, err := l.Units.Act(ctx, u)
		l.jobs <- job{unit: u, inputs: in.Digest, after: after, err: err}
	}()
	return nil
}

// ended pays the action, or keeps it owed and due again after a delay.
func (l *loop) ended(j job) {
	s := l.units[j.unit.Name]
	s.running, s.due = false, time.Time{}
	if j.err == nil {
		j.err = l.remember(j.unit.Name, plan.Loaded{Inputs: j.inputs, Boot: j.after.Boot, Invocation: j.after.Invocation})
	}
	if j.err != nil {
		l.actions.Failed++
		s.state, s.reason = "failed", j.err.Error()
		s.due = l.Clock.Now().Add(jitter(backoff(l.Times, s.failures)))
		s.failures++
		l.Trail.Record(action(audit.UnitFailed, j.unit, fmt.Sprintf("%s %s did not succeed", j.unit.Verb, j.unit.Name)).
			With(audit.Reason, j.err.Error()))
		return
	}
	l.actions.Paid++
	s.state, s.reason, s.failures, s.paid = "loaded", "", 0, l.Clock.Now()
	l.Trail.Record(action(audit.UnitPaid, j.unit, fmt.Sprintf("%s %s done", j.unit.Verb, j.unit.Name)).
		With(audit.Inputs, j.inputs.String()))
}

func action(kind audit.Kind, u plan.Unit, message string) audit.Record {
	return audit.Record{Kind: kind, Message: message}.
		With(audit.Unit, u.Name).With(audit.Verb, string(u.Verb)).With(audit.AlsoAffects, strings.Join(u.AlsoAffects, "\n"))
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
