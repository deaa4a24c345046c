// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/agent/state"
)

// wanted remembers what the present desire was made of, so that the same makes the same.
type wanted struct {
	object  *plan.Desired
	applied string // the ID of what the operator applied and is in force
	now     bool   // it confirms removals
	paused  string
}

// want puts together what the host shall have now: what the object asks for, and over it the
// operator's word. There is nothing to want before either has spoken.
func (l *loop) want() {
	// A new version of the object is no reason to look, and every look is on its way to the disk.
	if l.listening {
		l.listen()
	}
	word, readable := l.word, l.wordTrouble == ""
	w := wanted{object: l.object, paused: l.pausedBy(word.Pause)}
	if (readable || word.Applied != nil) && l.inForce(word.Applied) {
		w.applied, w.now = word.Applied.ID, word.Applied.Now && !l.memory.State().Operator.CarriedOut
	}
	if l.operator = operatorStatus(word, w.applied != ""); w == l.wanted {
		return
	}
	l.wanted = w
	if l.desired = w.object; w.applied != "" {
		base := plan.Desired{}
		if w.object != nil {
			base = *w.object
		}
		d := l.applied(*word.Applied).Over(base, l.Policy)
		d.Now = w.now
		l.desired = &d
	}
	if w.paused != "" && l.desired != nil {
		d := *l.desired
		d.Paused = w.paused
		l.desired = &d
	}
	if l.desired != nil { // at once: the pass that follows may not come to a plan
		l.memory.Note(func(s *state.State) { s.Holds = s.Missing(*l.desired, l.Policy) })
	}
}

// listen reads the operator's word. While part of it cannot be read, what was heard last of that holds.
func (l *loop) listen() {
	w, err := l.Operator.Word(l.word)
	l.word = w
	if err == nil {
		l.wordTrouble, l.listening = "", false
		return
	}
	if err.Error() != l.wordTrouble {
		l.wordTrouble = err.Error()
		l.Trail.Record(audit.Record{Kind: audit.Trouble, Message: l.wordTrouble})
	}
}

// inForce decides whether what the operator applied wins: until the object asks for something else
// than it did when that was first seen. An object that had never been read then is given the chance
// to be that.
func (l *loop) inForce(a *state.Applied) bool {
	o, projection := l.memory.State().Operator, l.memory.State().Projection
	defer func() { l.memory.Note(func(s *state.State) { s.Operator = o }) }()
	if a == nil {
		if o.ID != "" {
			l.Trail.Record(audit.Record{Kind: audit.OperatorReleased, Message: "the operator took back what was applied; the object wins again"})
		}
		o = state.Operator{}
		return false
	}
	if o.ID != a.ID {
		o = state.Operator{ID: a.ID, Base: projection, CarriedOut: l.forgot}
		l.Trail.Record(audit.Record{Kind: audit.OperatorApplied, Message: "the operator applied " + plan.Printable(a.Source) + "; it wins until the object asks for something else than now"}.
			With(audit.Operator, plan.Printable(a.ID)))
	}
	switch {
	case o.Overtaken || l.object == nil || !l.object.Verified:
	case o.Base == plan.Digest{}:
		o.Base = projection
	case o.Base != projection:
		o.Overtaken = true
		l.Trail.Record(audit.Record{Kind: audit.OperatorReleased, Message: "the object asks for something new, which wins over what the operator applied"}.
			With(audit.Operator, plan.Printable(a.ID)))
	}
	return !o.Overtaken
}

// applied validates what was applied, as everything else is.
func (l *loop) applied(a state.Applied) plan.Desired {
	d := plan.Desired{Listed: make(map[plan.RowID]bool)}
	for _, id := range a.Lists {
		d.Listed[id] = true
	}
	for _, f := range a.Files {
		e, err := l.Remember(f.Key, f.Data)
		if err != nil {
			d.Refused = append(d.Refused, plan.Refusal{Key: f.Key, Reason: plan.Printable(err.Error())})
			continue
		}
		d.Entries = append(d.Entries, e)
	}
	return d
}

// pausedBy is the reason of a pause that is not over, or nothing.
func (l *loop) pausedBy(p *state.Pause) string {
	l.resume = time.Time{}
	now := l.Clock.Now()
	if p == nil || p.Over(now, l.Clock.Boot(), l.Clock.Uptime()) {
		return ""
	}
	l.resume = p.Until
	if left := p.Until.Sub(p.At) - (l.Clock.Uptime() - p.Uptime); p.Boot == l.Clock.Boot() && now.Add(left).Before(l.resume) {
		l.resume = now.Add(left)
	}
	return fmt.Sprintf("%s (until %s)", plan.Printable(p.Reason), p.Until.UTC().Format(time.RFC3339))
}

func operatorStatus(w state.Word, inForce bool) *report.Operator {
	if w.Applied == nil {
		return nil
	}
	o := &report.Operator{ID: plan.Printable(w.Applied.ID), Source: plan.Printable(w.Applied.Source), At: w.Applied.At.UTC(), State: "overtaken by the object"}
	if inForce {
		o.State = "in force"
	}
	return o
}

// Once does what one turn of Run does and sees the unit actions through, for a command: it returns
// when nothing is owed any more, or with the status as it is when ctx ends.
func (a *Agent) Once(ctx context.Context) (report.Status, error) {
	l := a.loop()
	l.once = true
	if err := l.begin(ctx); err != nil {
		return report.Status{}, err
	}
	for l.actions.Busy() || l.trust.proving {
		select {
		case <-ctx.Done():
			return l.status(), nil
		case j := <-l.actions.Jobs():
			l.actions.Ended(j)
		case p := <-l.trust.proofs:
			l.trust.take(p)
		case <-l.schedule.wake(l.timers()):
		}
		l.pass(ctx)
	}
	return l.status(), nil
}
