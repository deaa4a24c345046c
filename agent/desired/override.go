// SPDX-License-Identifier: Apache-2.0

package desired

import (
	"fmt"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/clock"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/printable"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/agent/state"
)

// override is the local override as it was read last.
type override struct {
	state.Overrides
	lastError  string    // why it could not be read
	stale      bool      // it may have changed: something happened on this host, or time passed
	memoryLost bool      // whether the override that is there was carried out is not remembered
	pauseEnds  time.Time // when a pause ends; zero if there is none
}

// Reload has the local override read again at the next Update.
func (s *State) Reload() { s.override.stale = true }

// Timer is the end of a pause.
func (s *State) Timer() clock.Timer {
	return clock.Timer{What: "the end of a pause", At: s.override.pauseEnds}
}

// readOverride reads the local override. While part of it cannot be read, what was read last of that holds.
func (s *State) readOverride() {
	if s.Overrides == nil {
		s.override.stale = false
		return
	}
	o := &s.override
	w, err := s.Overrides(o.Overrides)
	o.Overrides = w
	if err == nil {
		o.lastError, o.stale = "", false
		return
	}
	if err.Error() != o.lastError {
		o.lastError = err.Error()
		s.Trail.Record(audit.Record{Kind: audit.Error, Message: o.lastError})
	}
}

// inForce decides whether what the operator applied wins: until the ControllerConfig asks for something else
// than it did when that was first seen.
func (s *State) inForce(a *state.Applied) bool {
	o := s.trackApplied(a)
	s.Memory.Note(func(m *state.State) { m.Override = o })
	return a != nil && !o.Overtaken
}

// trackApplied compares what the ControllerConfig asks for now with what it asked for when the operator's content was
// first seen. If it had not been read by then, its first version is what later ones are compared with.
func (s *State) trackApplied(a *state.Applied) state.OverrideState {
	o, projection := s.Memory.State().Override, s.Memory.State().Projection
	if a == nil {
		if o.ID != "" {
			s.Trail.Record(audit.Record{Kind: audit.OverrideReverted,
				Message: "the operator took back what was applied; the ControllerConfig wins again"})
		}
		return state.OverrideState{}
	}
	if o.ID != a.ID {
		o = state.OverrideState{ID: a.ID, Base: projection, CarriedOut: s.override.memoryLost}
		message := "the operator applied " + printable.Text(a.Source) +
			"; it wins until the ControllerConfig asks for something else than now"
		s.Trail.Record(audit.Record{Kind: audit.OverrideSet, Message: message}.
			With(audit.Override, printable.Text(a.ID)))
	}
	switch {
	case o.Overtaken || s.fromCluster == nil || !s.fromCluster.Verified:
	case o.Base == plan.Digest{}:
		o.Base = projection
	case o.Base != projection:
		o.Overtaken = true
		s.Trail.Record(audit.Record{Kind: audit.OverrideReverted,
			Message: "the ControllerConfig asks for something new, which wins over what the operator applied"}.
			With(audit.Override, printable.Text(a.ID)))
	}
	return o
}

// applied validates what was applied, as everything else is.
func (s *State) applied(a state.Applied) plan.Desired {
	d := plan.Desired{Listed: make(map[plan.Field]bool)}
	for _, id := range a.Lists {
		d.Listed[id] = true
	}
	for _, f := range a.Files {
		e, err := s.Remember(f.Key, f.Data)
		if err != nil {
			d.Refused = append(d.Refused, plan.Refusal{Key: f.Key, Reason: printable.Text(err.Error())})
			continue
		}
		d.Entries = append(d.Entries, e)
	}
	return d
}

// pausedBy is the reason of a pause that is not over, or nothing.
func (s *State) pausedBy(p *state.Pause) string {
	o := &s.override
	o.pauseEnds = time.Time{}
	now := s.Clock.Now()
	if p == nil || p.Over(now, s.Clock.Boot(), s.Clock.Uptime()) {
		return ""
	}
	left := p.Until.Sub(now)
	if p.Boot == s.Clock.Boot() {
		left = min(left, p.Until.Sub(p.At)-(s.Clock.Uptime()-p.Uptime))
	}
	o.pauseEnds = now.Add(left) // by the monotonic clock, which nobody sets
	return fmt.Sprintf("%s (until %s)", printable.Text(p.Reason), p.Until.UTC().Format(time.RFC3339))
}

// status shows what was applied, if anything was.
func (o override) status(inForce bool) *report.Override {
	if o.Applied == nil {
		return nil
	}
	r := &report.Override{ID: printable.Text(o.Applied.ID), Source: printable.Text(o.Applied.Source),
		At: o.Applied.At.UTC(), State: report.Overtaken}
	if inForce {
		r.State = report.InForce
	}
	return r
}
