// SPDX-License-Identifier: Apache-2.0

package unitactions

import (
	"context"
	"slices"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/state"
	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
)

// Disturb notes, before a commit, of which units it can no longer be known what they have loaded: of those that are
// reloaded and that get back what they have loaded, since somebody may have reloaded them with what was there in
// between, of which systemd keeps no trace; and of those of which it removes a file and of whose run nothing else is
// known, since a removal leaves no time behind by which it could be told later that the run began before it. was and
// will tell what a unit reads before and after; removed are the fields of which the commit removes files.
func (a *Actions) Disturb(ctx context.Context, was, will func(unit string) unitplan.Inputs, removed []plan.Field) {
	unknown := false
	for _, u := range a.Policy.Units {
		next := will(u.Name).Digest
		if was(u.Name).Digest == next {
			continue
		}
		m, known := a.Memory.State().Units[u.Name]
		if known && u.Verb == unitplan.Reload && m.Inputs == next {
			m.Unknown, unknown = true, true
			a.Memory.Note(func(s *state.State) { s.Units[u.Name] = m })
		}
		if !a.reads(u, removed) {
			continue
		}
		if now, _, err := a.askSystemd(ctx, u); err == nil && now.Exists && (m.Unknown || !m.In(now)) {
			a.Memory.Note(func(s *state.State) { s.Units[u.Name] = m.Outdated(now) })
			unknown = true
		}
	}
	if unknown {
		_ = a.Memory.Save() // the commit does not wait for it
	}
}

// reads tells whether a unit reads the files of one of the fields.
func (a *Actions) reads(u unitplan.Unit, fields []plan.Field) bool {
	return slices.ContainsFunc(fields, func(id plan.Field) bool {
		spec, _ := a.Policy.File(id)
		return slices.Contains(spec.OnChange, u.Name)
	})
}

// Changed takes in what is on disk after a commit: what units read before and now. Of a unit with a job under way of
// which files were written or removed it can no longer be known what it has loaded. A commit that failed may have done
// that or not.
func (a *Actions) Changed(was, is func(unit string) unitplan.Inputs) {
	for _, u := range a.Policy.Units {
		if s := a.units[u.Name]; s != nil && !is(u.Name).Untouched(was(u.Name)) {
			s.disturbed = a.Clock.Uptime()
		}
	}
}
