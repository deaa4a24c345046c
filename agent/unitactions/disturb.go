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
// reloaded and of which the commit writes over what somebody else left in a file, since they may have been reloaded
// with that; and of those of which it removes a file and of whose run nothing else is known, since a removal leaves no
// time behind by which it could be told later that the run began before it. was and will tell what a unit reads before
// and after; mended are the fields of which the commit writes over what others left, and removed those of which it
// removes files.
func (a *Actions) Disturb(ctx context.Context, was, will func(unit string) unitplan.Inputs,
	mended, removed []plan.Field) {
	unknown := false
	for _, u := range a.Policy.Units {
		if was(u.Name).Digest == will(u.Name).Digest {
			continue
		}
		m, known := a.Memory.State().Units[u.Name]
		if known && u.Verb == unitplan.Reload && a.reads(u, mended) {
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
		_ = a.Memory.Save() // the repair does not wait for it
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
