// SPDX-License-Identifier: Apache-2.0

package files

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/state"
)

// Apply carries the plan for d out: claim, intent, commit, outcome, memory (steps 4 to 7 of ARCHITECTURE.md). An empty
// plan touches nothing. failures is how many reconciles failed before this one.
// What was written is given with an error, too.
func (f *Files) Apply(ctx context.Context, d plan.Desired, p plan.Plan, failures int) (written []Written, err error) {
	p, unclaimed := f.claim(p)
	if p.Shrinks() && f.Policy.Trust.Slow() {
		// What goes is forgotten before: killed right after the commit, the agent would bring it back until
		// the API server answers. What cannot be forgotten goes all the same, and is complained of below.
		_ = f.keep(d, p.Entries)
	}
	if !p.Empty() {
		if written, err = f.commit(ctx, d, p, failures); err != nil {
			// A field may fail for as long as it likes. What the others got, and lost, is remembered all the same;
			// that it cannot be remembered is met again by a reconcile that succeeds.
			_ = f.keep(d, p.Entries)
			return written, err
		}
	}
	if unclaimed != nil {
		return written, unclaimed
	}
	err = f.keep(d, p.Entries)
	f.leave(p)
	if f.conflicts.next.IsZero() {
		f.synced = f.Clock.Now()
	}
	return written, err
}

// claim makes the plan's claims durable before anything is written. If that fails, the plan loses the writes that need
// one: what they write could never be removed again. The others need none.
func (f *Files) claim(p plan.Plan) (plan.Plan, error) {
	if p.Holds != nil {
		f.Memory.Note(func(s *state.State) { s.Holds = p.Holds })
	}
	f.former = f.Memory.State().Owned
	if p.Owned == nil {
		return p, nil
	}
	err := f.Memory.Update(func(s *state.State) { s.Owned = p.Owned })
	if err != nil {
		p.Writes = slices.DeleteFunc(slices.Clone(p.Writes), func(w plan.Write) bool {
			_, claimed := p.Owned[w.Path]
			return claimed
		})
	}
	return p, err
}

// keep remembers what the files have now, or shall have where something is in the way.
func (f *Files) keep(d plan.Desired, planned []plan.Entry) error {
	if d.Verified {
		if err := f.Memory.Keep(d.ControllerConfig, f.mergeEntries(d.Entries, planned)); err != nil {
			return err
		}
	}
	return f.Memory.Save()
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

// commit goes on after a request that failed, and gives the first error.
func (f *Files) commit(ctx context.Context, d plan.Desired, p plan.Plan, failures int) (written []Written, err error) {
	var failed, unseen error
	for _, turn := range p.Turns(failures, f.failing) {
		for _, part := range turn {
			done, err := f.commitPart(ctx, d.ControllerConfig, part)
			written, failed = append(written, done...), cmp.Or(failed, err)
		}
		unseen = f.look(ctx, d)
	}
	return written, cmp.Or(failed, unseen)
}

// commitPart is one request to the writer. o is for the records.
func (f *Files) commitPart(ctx context.Context, o plan.ControllerConfig, p plan.Plan) ([]Written, error) {
	f.Trail.Record(audit.Intended(o, p))
	after := f.foresee(ctx, p)
	timed, cancel := context.WithTimeout(ctx, writerTimeout)
	defer cancel()
	err := f.Writer.Commit(timed, p.Commit())
	for _, id := range p.Fields() {
		f.failing[id] = err != nil
	}
	if err == nil {
		f.Memory.Note(func(s *state.State) { s.Owned = p.Done(s.Owned) })
	} else if nothingChanged(err) {
		f.Memory.Note(func(s *state.State) { s.Owned = p.Undone(s.Owned, f.former) })
	}
	for _, r := range audit.Outcome(o, p, err) {
		f.Trail.Record(r)
	}
	if err == nil {
		return f.wrote(p, after), nil
	}
	if !nothingChanged(err) {
		f.doubt(p)
	}
	return nil, fmt.Errorf("committing: %v", err)
}

// Applied notes that a reconcile that asked for d succeeded, so that the next can tell what is new.
func (f *Files) Applied(d plan.Desired) {
	f.applied = make(map[plan.Key]plan.Digest, len(d.Entries))
	for _, e := range d.Entries {
		f.applied[e.Key] = e.Digest
	}
}

func nothingChanged(err error) bool {
	var known interface{ NothingChanged() bool }
	return errors.As(err, &known) && known.NothingChanged()
}
