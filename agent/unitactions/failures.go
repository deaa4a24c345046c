// SPDX-License-Identifier: Apache-2.0

package unitactions

import (
	"fmt"
	"maps"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/printable"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/agent/state"
)

// Restore goes on where an agent that died stopped counting. What it did not see the end of counts as failed:
// an action that crashes the agent must not be retried without limit.
func (a *Actions) Restore() {
	now := a.Clock.Now()
	for _, u := range a.Policy.Units {
		m := a.Memory.State().Units[u.Name]
		if m.Tries == 0 {
			continue
		}
		if m.Tried.After(now) { // the clock was set back
			m.Tried = now
		}
		s := a.unit(u.Name)
		s.failures, s.failed = m.Tries, m.Inputs
		s.state = report.UnitPending
		s.reason = fmt.Sprintf("before this start: tried %s, and not seen to succeed", printable.Count(m.Tries, "time"))
		pause := a.Backoff.Pause(m.Tries - 1)
		if m.Tries >= maxFailures {
			a.forgetMade(u)
			s.state, s.opened, pause = report.BreakerOpen, m.Tried, a.Times.Breaker
		}
		// With a monotonic reading, which what is remembered has not.
		s.due = now.Add(a.Backoff.Jitter(pause) - now.Sub(m.Tried))
	}
}

// ResetFailures is for an orderly end: whoever stops or configures the agent may have repaired what failed. Only
// one that dies leaves its count behind.
func (a *Actions) ResetFailures() error {
	units, tried := maps.Clone(a.Memory.State().Units), false
	for name, m := range units {
		tried = tried || m.Tries > 0
		m.Tries, m.Tried = 0, time.Time{}
		units[name] = m
	}
	if !tried {
		return nil
	}
	a.Memory.Note(func(s *state.State) { s.Units = units })
	return a.Memory.Save()
}
