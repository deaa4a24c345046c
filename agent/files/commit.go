// SPDX-License-Identifier: Apache-2.0

package files

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

// commit is one request to the writer, all or nothing up to the first rename. Only when that failed
// before is it one request a field, so that a directory that cannot be written does not keep new trust
// from the others, nor their units from loading it. Each retry begins with another field: on a read-only file
// system the writer ends, and with it what comes right after, be it a look. So fields that failed the last
// time come last, after a look.
func (f *Files) commit(ctx context.Context, d plan.Desired, p plan.Plan, failures int) ([]Written, error) {
	good, bad := []plan.Plan{p}, []plan.Plan(nil)
	if failures > 0 {
		parts := p.ByField()
		first := failures % max(1, len(parts))
		good, bad = f.certain(slices.Concat(parts[first:], parts[:first]))
	}
	written, failed := f.commitParts(ctx, good)
	unseen := f.look(ctx, d)
	if len(bad) > 0 {
		more, err := f.commitParts(ctx, bad)
		written = append(written, more...)
		if failed == nil {
			failed = err
		}
		unseen = f.look(ctx, d)
	}
	return written, cmp.Or(failed, unseen)
}

// certain tells the parts of which the last commit did not fail from the others.
func (f *Files) certain(parts []plan.Plan) (good, bad []plan.Plan) {
	for _, p := range parts {
		if slices.ContainsFunc(p.Fields(), func(id plan.Field) bool { return f.failing[id] }) {
			bad = append(bad, p)
		} else {
			good = append(good, p)
		}
	}
	return good, bad
}

// commitParts goes on after a part that failed, and gives the first error.
func (f *Files) commitParts(ctx context.Context, parts []plan.Plan) (written []Written, first error) {
	for _, p := range parts {
		part, err := f.commitPart(ctx, p)
		written = append(written, part...)
		if first == nil {
			first = err
		}
	}
	return written, first
}

func (f *Files) commitPart(ctx context.Context, p plan.Plan) (written []Written, err error) {
	f.Trail.Record(audit.Intended(p))
	after := f.foresee(p)
	f.Units.Disturb(ctx, f.inputs(f.observed, nil), f.inputs(after, nil), removed(p))
	ctx, cancel := context.WithTimeout(ctx, writerTimeout)
	defer cancel()
	err = f.Writer.Commit(ctx, p.Commit())
	for _, id := range p.Fields() {
		f.failing[id] = err != nil
	}
	if err != nil {
		if nothingChanged(err) {
			f.Memory.Note(func(s *state.State) { s.Owned = p.Undone(s.Owned, f.former) })
		} else {
			f.markUnsynced(p)
			f.unswept = true
		}
		f.Trail.Record(audit.About(p.ControllerConfig, audit.CommitFailed, "a commit stopped").With(audit.Reason,
			err.Error()))
		return nil, fmt.Errorf("committing: %v", err)
	}
	f.see(after)
	for _, w := range p.Writes {
		f.Trail.Record(audit.Wrote(p.ControllerConfig, w))
		f.cache.at[w.Key] = w.Digest
		delete(f.unsynced, w.Key)
		if f.conflicts.left != nil {
			f.conflicts.left[w.Key] = w.Digest
		}
		f.writes++
		written = append(written, Written{Write: w, Replaced: f.cache.contents[w.Before].Certs})
	}
	f.Memory.Note(func(s *state.State) { s.Owned = p.Done(s.Owned) })
	for _, r := range p.Removes {
		if r.Digest == (plan.Digest{}) {
			continue
		}
		f.Trail.Record(audit.Took(p.ControllerConfig, r))
	}
	return written, nil
}

// foresee is what will be observed once p is carried out.
func (f *Files) foresee(p plan.Plan) plan.Observed {
	after, wrote := maps.Clone(f.observed), make(plan.Observed, len(p.Writes))
	for _, w := range p.Writes {
		f.cache.wrote(w.Entry)
		wrote[w.Key] = plan.File{Kind: plan.Regular, Digest: w.Digest} // when it changed the next look tells
	}
	f.merge(after, wrote)
	for _, r := range p.Removes {
		delete(after, r.Key)
	}
	return after
}

// removed are the fields of which p removes files.
func removed(p plan.Plan) (fields []plan.Field) {
	for _, r := range p.Removes {
		fields = append(fields, r.Field)
	}
	return fields
}

// markUnsynced marks what a failed commit may have left undurable: after a failed fsync the bytes can be
// read and still be lost, so the next reconcile stages them anew.
func (f *Files) markUnsynced(p plan.Plan) {
	if f.unsynced == nil {
		f.unsynced = make(map[plan.Key]bool)
	}
	for _, w := range p.Writes {
		f.unsynced[w.Key] = true
	}
}

func nothingChanged(err error) bool {
	var known interface{ NothingChanged() bool }
	return errors.As(err, &known) && known.NothingChanged()
}
