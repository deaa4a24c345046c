// SPDX-License-Identifier: Apache-2.0

package files

import (
	"context"
	"slices"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/state"
)

// Apply carries the plan for d out: claim, intent, commit, outcome, memory (steps 4 to 7 of ARCHITECTURE.md). An empty
// plan touches nothing. failures is how many reconciles failed before this one.
// What was written is given with an error, too.
func (f *Files) Apply(ctx context.Context, d plan.Desired, p plan.Plan, failures int) (written []Written, err error) {
	if p.Holds != nil {
		f.Memory.Note(func(s *state.State) { s.Holds = p.Holds })
	}
	p = f.deferRepairs(d, p)
	unclaimed := f.claim(p)
	if unclaimed != nil {
		p = p.Unclaimed()
	}
	if p.Shrinks() && f.Policy.Trust.Slow() {
		// What goes is forgotten before: killed right after the commit, the agent would bring it back until
		// the API server answers. What cannot be forgotten goes all the same, and is complained of below.
		_ = f.keep(d, p)
	}
	if !p.Empty() {
		if written, err = f.commit(ctx, d, p, failures); err != nil {
			// A field may fail for as long as it likes. What the others got, and lost, is remembered all the same;
			// that it cannot be remembered is met again by a reconcile that succeeds.
			_ = f.keep(d, p)
			return written, err
		}
	}
	if unclaimed != nil {
		return written, unclaimed
	}
	f.leave(p)
	if f.conflicts.next.IsZero() {
		f.synced = f.Clock.Now()
	}
	return written, f.keep(d, p)
}

// Applied notes that a reconcile that asked for d succeeded, so that the next can tell what is new.
func (f *Files) Applied(d plan.Desired) {
	f.applied = make(map[plan.Key]plan.Digest, len(d.Entries))
	for _, e := range d.Entries {
		f.applied[e.Key] = e.Digest
	}
}

// keep remembers what the files have now, or shall have where something is in the way.
func (f *Files) keep(d plan.Desired, p plan.Plan) error {
	if d.Verified {
		if err := f.Memory.Keep(d.ControllerConfig, f.mergeEntries(d.Entries, p.Entries)); err != nil {
			return err
		}
	}
	return f.Memory.Save()
}

// claim makes the plan's claims durable before anything is written.
func (f *Files) claim(p plan.Plan) error {
	f.former = f.Memory.State().Owned
	if p.Owned == nil {
		return nil
	}
	return f.Memory.Update(func(s *state.State) { s.Owned = p.Owned })
}

// mergeEntries is entries with those of newer in place of what they have for the same file, or at the end.
func (f *Files) mergeEntries(entries, newer []plan.Entry) []plan.Entry {
	entries = slices.Clone(entries)
	at := make(map[string]int, len(entries))
	place := func(e plan.Entry) string {
		if path, ok := f.Policy.Path(e.Key); ok {
			return path
		}
		return e.Key.String()
	}
	for i, e := range entries {
		at[place(e)] = i
	}
	for _, e := range newer {
		if i, ok := at[place(e)]; ok {
			entries[i] = e
		} else {
			entries = append(entries, e)
		}
	}
	return entries
}
