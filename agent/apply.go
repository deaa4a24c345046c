// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/state"
)

// apply carries the plan out: claim, intent, commit, outcome, memory (steps 3 and 4 of the flow).
// An empty plan touches nothing.
func (l *loop) apply(ctx context.Context, p plan.Plan) error {
	l.recordExceptions(p)
	l.entries = p.Entries
	l.wait(p)
	if p.Holds != nil {
		l.memory.Note(func(s *state.State) { s.Holds = p.Holds })
	}
	l.desired.Planned(p.Entries)
	p = l.calm(p)
	unclaimed := l.claim(p)
	if unclaimed != nil {
		p = p.Unclaimed()
	}
	if p.Shrinks() && l.Policy.Trust.Slow() {
		// What goes is forgotten before: killed right after the commit, the agent would bring it back until
		// the API server answers. What cannot be forgotten goes all the same, and is complained of below.
		_ = l.keep(p)
	}
	if !p.Empty() {
		if err := l.commit(ctx, p); err != nil {
			// A row may fail for as long as it likes. What the others got, and lost, is remembered all the same;
			// that it cannot be remembered is met again by a pass that succeeds.
			_ = l.keep(p)
			return err
		}
	}
	if unclaimed != nil {
		return unclaimed
	}
	if l.leave(p); l.quarrels.next.IsZero() {
		l.synced = l.Clock.Now()
	}
	return l.keep(p)
}

// keep remembers what the files have now, or shall have where something is in the way.
func (l *loop) keep(p plan.Plan) error {
	if l.desired.Current().Verified {
		if err := l.memory.Keep(l.desired.Current().Object, l.overlay(l.desired.Current().Entries, p.Entries)); err != nil {
			return err
		}
	}
	return l.memory.Save()
}

// claim makes the plan's claims durable before anything is written.
func (l *loop) claim(p plan.Plan) error {
	l.former = l.memory.State().Owned
	if p.Owned == nil {
		return nil
	}
	return l.memory.Update(func(s *state.State) { s.Owned = p.Owned })
}

// commit is one request to the writer, all or nothing up to the first rename. Only when that failed
// before is it one request a row, so that a directory that cannot be written does not keep new trust
// from the others, nor their units from loading it. Each retry begins with another row: on a read-only file
// system the writer ends, and with it what comes right after, be it a look. So rows that failed the last
// time come last, after a look.
func (l *loop) commit(ctx context.Context, p plan.Plan) error {
	good, bad := []plan.Plan{p}, []plan.Plan(nil)
	if l.schedule.failures > 0 {
		parts := p.ByRow()
		first := l.schedule.failures % max(1, len(parts))
		good, bad = l.certain(slices.Concat(parts[first:], parts[:first]))
	}
	failed := l.commitParts(ctx, good)
	unseen := l.look(ctx)
	if len(bad) > 0 {
		if err := l.commitParts(ctx, bad); failed == nil {
			failed = err
		}
		if err := l.look(ctx); failed == nil {
			return err
		}
	}
	return cmp.Or(failed, unseen)
}

// certain tells the parts of which the last commit did not fail from the others.
func (l *loop) certain(parts []plan.Plan) (good, bad []plan.Plan) {
	for _, p := range parts {
		if slices.ContainsFunc(p.Rows(), func(id plan.RowID) bool { return l.failing[id] }) {
			bad = append(bad, p)
		} else {
			good = append(good, p)
		}
	}
	return good, bad
}

// commitParts goes on after a part that failed, and gives the first error.
func (l *loop) commitParts(ctx context.Context, parts []plan.Plan) error {
	var first error
	for _, p := range parts {
		if err := l.commitPart(ctx, p); err != nil && first == nil {
			first = err
		}
	}
	return first
}

func (l *loop) commitPart(ctx context.Context, p plan.Plan) error {
	l.Trail.Record(audit.Intended(p))
	after := l.foresee(p)
	mended, removed := l.rows(p)
	l.actions.Disturb(ctx, l.inputs(l.observed, nil), l.inputs(after, nil), mended, removed)
	ctx, cancel := context.WithTimeout(ctx, writerTimeout)
	defer cancel()
	err := l.Writer.Commit(ctx, p.Commit())
	for _, id := range p.Rows() {
		l.failing[id] = err != nil
	}
	if err != nil {
		if nothingChanged(err) {
			l.memory.Note(func(s *state.State) { s.Owned = p.Undone(s.Owned, l.former) })
			l.quarrels.stood(p)
		} else {
			l.distrust(p)
			l.unswept = true
		}
		l.Trail.Record(audit.About(p.Object, audit.CommitFailed, "a commit stopped").With(audit.Reason, err.Error()))
		return fmt.Errorf("committing: %v", err)
	}
	l.see(after)
	for _, w := range p.Writes {
		l.Trail.Record(audit.Wrote(p.Object, w))
		l.known.at[w.Key] = w.Digest
		delete(l.unsynced, w.Key)
		if l.quarrels.left != nil {
			l.quarrels.left[w.Key] = w.Digest
		}
		l.writes++
		l.consumers.Replaced(w, l.known.contents[w.Before].Certs)
	}
	l.memory.Note(func(s *state.State) { s.Owned = p.Done(s.Owned) })
	for _, r := range p.Removes {
		if r.Digest == (plan.Digest{}) {
			continue
		}
		l.Trail.Record(audit.Took(p.Object, r))
	}
	return nil
}

// distrust marks what a failed commit may have left undurable: after a failed fsync the bytes can be
// read and still be lost, so the next pass stages them anew.
func (l *loop) distrust(p plan.Plan) {
	if l.unsynced == nil {
		l.unsynced = make(map[plan.Key]bool)
	}
	for _, w := range p.Writes {
		l.unsynced[w.Key] = true
	}
}

func nothingChanged(err error) bool {
	var known interface{ NothingChanged() bool }
	return errors.As(err, &known) && known.NothingChanged()
}

// look observes the host again after a commit, because units are judged by what is on disk now.
// Without units nobody needs to know.
func (l *loop) look(ctx context.Context) error {
	if len(l.Policy.Units) == 0 {
		return nil
	}
	o, err := observe(ctx, l.Writer, plan.Queries(*l.desired.Current(), l.memory.State().Memory, l.Policy, l.known.at))
	if l.blind = err != nil; l.blind {
		return err // what was written since the last look is in doubt then: see plan.Doubts
	}
	l.known.see(o)
	l.see(o)
	return nil
}

// recordExceptions records what is refused or kept, once.
func (l *loop) recordExceptions(p plan.Plan) {
	for _, r := range news(l.refused, p.Refused) {
		l.Trail.Record(audit.Exception(p.Object, audit.Refused, r))
	}
	for _, k := range news(l.kept, p.Kept) {
		l.Trail.Record(audit.Exception(p.Object, audit.Kept, k))
	}
	l.refused, l.kept = p.Refused, p.Kept
}

// inputs tells what units read if o is what is on disk.
func (l *loop) inputs(o plan.Observed, doubts map[plan.Key]string) func(unit string) plan.Inputs {
	return func(unit string) plan.Inputs { return plan.InputsOf(unit, l.Policy, o, l.known.contents, doubts) }
}

// seen tells whether somebody could look at all that the unit reads since the last commit.
func (l *loop) seen(unit string) bool {
	failed := func(r plan.Row) bool { return l.failing[r.ID] && slices.Contains(r.OnChange, unit) }
	if l.blind && slices.ContainsFunc(l.Policy.Rows, failed) {
		return false
	}
	return l.inputs(l.observed, plan.Doubts(nil, nil, l.observed, nil))(unit).Doubt == ""
}

// foresee is what will be observed once p is carried out.
func (l *loop) foresee(p plan.Plan) plan.Observed {
	after, written := maps.Clone(l.observed), make(plan.Observed, len(p.Writes))
	for _, w := range p.Writes {
		l.known.wrote(w.Entry)
		written[w.Key] = plan.File{Kind: plan.Regular, Digest: w.Digest} // when it changed the next look tells
	}
	l.merge(after, written)
	for _, r := range p.Removes {
		delete(after, r.Key)
	}
	return after
}

// see takes in what is on disk after a commit.
func (l *loop) see(o plan.Observed) {
	l.actions.Changed(l.inputs(l.observed, nil), l.inputs(o, nil))
	l.observed = o
}

// rows are those of which p writes over what somebody else left in a file, and those of which it removes files.
func (l *loop) rows(p plan.Plan) (mended, removed []plan.RowID) {
	for _, w := range p.Writes {
		if !l.ours(w) {
			mended = append(mended, w.Row)
		}
	}
	for _, r := range p.Removes {
		removed = append(removed, r.Row)
	}
	return mended, removed
}

// ours tells whether w writes over what we left there: in this life, or as a claim or the last good version says.
func (l *loop) ours(w plan.Write) bool {
	if left, ok := l.quarrels.left[w.Key]; ok {
		return w.Before == left
	}
	if slices.Contains(l.memory.State().Owned[w.Path].Digests, w.Before) {
		return true
	}
	left, good := plan.Digest{}, l.memory.State().LastGood
	if i := slices.IndexFunc(good, func(r state.Remembered) bool { return r.Key == w.Key }); i >= 0 {
		left = good[i].Digest
	}
	return w.Before == left
}
