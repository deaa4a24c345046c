// SPDX-License-Identifier: Apache-2.0

package unitactions

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/state"
	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
)

// confirm remembers what a unit has loaded by a job that is done. If its files were touched between the dispatch
// and the end there is no telling, whatever they hold now: it stays unknown, and the action is pending once more. That
// the run began before we wrote them is known by a clock that nobody sets. A repair or a write that is still to come
// says nothing of what was loaded; that nobody could look does.
func (a *Actions) confirm(ctx context.Context, u unitplan.Unit, s *unit, in unitplan.Inputs, seen bool) error {
	j := s.done
	if j == nil || !seen {
		return nil
	}
	if s.disturbed > 0 || !in.Untouched(j.inputs) {
		s.done = nil
		if began := j.after.SinceUptime; began > 0 && began < s.disturbed {
			return a.Memory.Loaded(u.Name, a.Memory.State().Units[u.Name].Outdated(j.after))
		}
		return nil
	}
	err := a.load(ctx, u, in, j.after)
	if err == nil {
		s.done = nil
	}
	return err
}

// load remembers that a run of a unit has loaded what is on disk. If it is a oneshot that made something new of it,
// those that load that have not, and that is remembered at once.
func (a *Actions) load(ctx context.Context, u unitplan.Unit, in unitplan.Inputs, run unitplan.State) error {
	before, known := a.Memory.State().Units[u.Name]
	now := unitplan.Loaded{Inputs: in.Digest, Fields: in.Digests(), Boot: run.Boot, Invocation: run.Invocation}
	if u.Verb != unitplan.Restart {
		return a.Memory.Loaded(u.Name, now)
	}
	now.Made = in.Digest
	if before.MadeOf(known, in, a.booted()) == in.Digest {
		return a.Memory.Loaded(u.Name, now)
	}
	ctx, cancel := context.WithTimeout(ctx, busTimeout)
	defer cancel()
	for _, other := range a.Policy.Units {
		if !slices.Contains(a.Policy.Prerequisites(other.Name), u.Name) {
			continue
		}
		s, err := a.Systemd.State(ctx, other.Name)
		if err != nil {
			return fmt.Errorf("asking systemd about %s: %v", other.Name, err)
		}
		a.Memory.Note(func(m *state.State) { m.Units[other.Name] = m.Units[other.Name].Outdated(s) })
		a.unit(other.Name).disturbed = a.Clock.Uptime()
	}
	return a.Memory.Loaded(u.Name, now)
}

// forgetMade forgets what a oneshot is thought to have made, once nobody waits for it any more: those that load that
// may start now with whatever its failed runs left.
func (a *Actions) forgetMade(u unitplan.Unit) {
	m := a.Memory.State().Units[u.Name]
	if m.Made == (plan.Digest{}) {
		return
	}
	m.Made = plan.Digest{}
	if err := a.Memory.Loaded(u.Name, m); err != nil {
		a.Log.Warn("forgetting what a oneshot made; the next save tries again", zap.String("unit", u.Name), zap.Error(err))
	}
}

// booted is when the host was, by its clock.
func (a *Actions) booted() time.Time { return a.Clock.Now().Add(-a.Clock.Uptime()) }
