// SPDX-License-Identifier: Apache-2.0

package files

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/pki"
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

// Changed publishes what a new version of the ControllerConfig changed before anything else is looked at: to
// look at one file takes a fraction of looking at all, which otherwise is a third of the way to the
// disk. It adds and changes and never removes. The reconcile goes on as if it had not been: it looks at
// every file, these included, and does what is left; but a moment later, because consumers read the new
// file now. After a failure this is not for use, because then file by file matters more than time.
func (f *Files) Changed(ctx context.Context, d plan.Desired, now func() plan.Moment,
	answers map[pki.Fingerprint]string) ([]Written, error) {
	d, ok := f.changedSince(d)
	if !ok {
		return nil, nil
	}
	o, err := observe(ctx, f.Writer, f.Policy.Queries(d.Entries, f.cache.at))
	if err != nil {
		return nil, err
	}
	f.cache.see(o)
	f.merge(f.observed, o)
	p := plan.Compute(f.input(d, o, now(), answers))
	if p.Empty() || p.Shrinks() && f.Policy.Trust.Slow() {
		return nil, nil // what goes, be it revoked, is forgotten before: see Apply
	}
	if p, err = f.claim(p); err != nil {
		return nil, nil // the reconcile meets it again, and knows what can be done without
	}
	written, err := f.commitPart(ctx, d.ControllerConfig, p)
	if err != nil {
		return nil, err
	}
	for _, e := range d.Entries {
		f.applied[e.Key] = e.Digest
	}
	f.entries = f.mergeEntries(f.entries, p.Entries)
	return written, nil
}

// Flush remembers what Changed published, when the agent is stopped before the reconcile goes on.
func (f *Files) Flush(d plan.Desired) error {
	if !d.Verified {
		return nil
	}
	return f.Memory.Keep(d.ControllerConfig, f.mergeEntries(d.Entries, f.entries))
}

// changedSince is the part of what is desired that neither the last reconcile that succeeded nor Changed since then
// asked for; there is none if that is nothing or all. No field counts as listed, so nothing seems to be missing.
func (f *Files) changedSince(whole plan.Desired) (d plan.Desired, ok bool) {
	if f.applied == nil {
		return plan.Desired{}, false
	}
	d = whole
	d.Entries, d.Listed, d.Refused = nil, nil, nil
	for _, e := range whole.Entries {
		if f.applied[e.Key] != e.Digest {
			d.Entries = append(d.Entries, e)
		}
	}
	return d, len(d.Entries) > 0 && len(d.Entries) < len(whole.Entries)
}
