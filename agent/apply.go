// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// apply carries the plan out: claim, intent, commit, outcome, memory (steps 3 and 4 of the flow).
// An empty plan touches nothing.
func (l *loop) apply(ctx context.Context, p plan.Plan) error {
	l.recordExceptions(p)
	l.entries = p.Entries
	l.wait(p)
	if p.Holds != nil {
		l.memory.Holds = p.Holds
	}
	// Also if some of it fails: what was confirmed is noted with its hold, and what is revoked stays on disk until
	// it is taken away.
	l.memory.Operator.CarriedOut = l.memory.Operator.CarriedOut || l.desired.Now
	if l.object != nil {
		*l.object = l.object.Bereft(p.Entries)
	}
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
	if l.desired.Verified {
		if err := l.Store.Keep(&l.memory, l.desired.Object, l.overlay(l.desired.Entries, p.Entries)); err != nil {
			return err
		}
	}
	return l.Store.Save(l.memory)
}

// claim makes the plan's claims durable before anything is written.
func (l *loop) claim(p plan.Plan) error {
	l.former = l.memory.Owned
	if p.Owned == nil {
		return nil
	}
	l.memory.Owned = p.Owned
	err := l.Store.Save(l.memory)
	if err != nil {
		l.memory.Owned = l.former
	}
	return err
}

// commit is one request to the writer, all or nothing up to the first rename. Only when that failed
// before is it one request a row, so that a directory that cannot be written does not keep new trust
// from the others, nor their units from loading it. Each retry begins with another row: on a read-only file
// system the writer ends, and with it what comes right after, be it a look. So rows that failed the last
// time come last, after a look.
func (l *loop) commit(ctx context.Context, p plan.Plan) error {
	good, bad := []plan.Plan{p}, []plan.Plan(nil)
	if l.failures > 0 {
		parts := p.ByRow()
		first := l.failures % max(1, len(parts))
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
	l.Trail.Record(intent(p))
	after := l.disturb(ctx, p)
	ctx, cancel := context.WithTimeout(ctx, writerTimeout)
	defer cancel()
	err := l.Writer.Commit(ctx, p.Commit())
	for _, id := range p.Rows() {
		l.failing[id] = err != nil
	}
	if err != nil {
		if nothingChanged(err) {
			l.memory.Owned = p.Undone(l.memory.Owned, l.former)
			l.quarrels.stood(p)
		} else {
			l.distrust(p)
			l.unswept = true
		}
		l.Trail.Record(about(p.Object, audit.CommitFailed, "a commit stopped").With(audit.Reason, err.Error()))
		return fmt.Errorf("committing: %v", err)
	}
	l.see(after)
	for _, w := range p.Writes {
		l.Trail.Record(written(p.Object, w))
		l.known.at[w.Key] = w.Digest
		delete(l.unsynced, w.Key)
		if l.quarrels.left != nil {
			l.quarrels.left[w.Key] = w.Digest
		}
		l.writes++
		l.replace(w)
	}
	l.memory.Owned = p.Done(l.memory.Owned)
	for _, r := range p.Removes {
		if r.Digest == (plan.Digest{}) {
			continue
		}
		l.Trail.Record(about(p.Object, audit.Removed, "removed "+r.Path).
			With(audit.Row, string(r.Row)).With(audit.Entry, r.Name).With(audit.Path, r.Path).With(audit.Before, r.Digest.String()))
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
	o, err := observe(ctx, l.Writer, plan.Queries(*l.desired, l.memory.Memory, l.Policy, l.known.at))
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
		l.Trail.Record(exception(p.Object, audit.Refused, "refused", r))
	}
	for _, k := range news(l.kept, p.Kept) {
		l.Trail.Record(exception(p.Object, audit.Kept, "kept", k))
	}
	l.refused, l.kept = p.Refused, p.Kept
}

func exception(o plan.Object, kind audit.Kind, word string, r plan.Refusal) audit.Record {
	name, reason := plan.Printable(r.Key.String()), plan.Printable(r.Reason)
	return about(o, kind, fmt.Sprintf("%s %s: %s", word, name, reason)).
		With(audit.Row, string(r.Row)).With(audit.Entry, plan.Printable(r.Name)).With(audit.Reason, reason)
}

func about(o plan.Object, kind audit.Kind, message string) audit.Record {
	return audit.Record{Kind: kind, Message: message}.
		With(audit.UID, plan.Printable(o.UID)).With(audit.ResourceVersion, plan.Printable(o.ResourceVersion))
}

// intent says what is about to happen: one record for the whole commit, a line a file.
func intent(p plan.Plan) audit.Record {
	var files strings.Builder
	for _, w := range p.Writes {
		fmt.Fprintf(&files, "write %s %s -> %s\n", w.Path, orNone(w.Before), w.Digest)
	}
	for _, r := range p.Removes {
		fmt.Fprintf(&files, "remove %s %s\n", r.Path, r.Digest)
	}
	return about(p.Object, audit.Intent, fmt.Sprintf("about to write %s and remove %d", count(len(p.Writes), "file"), len(p.Removes))).
		With(audit.Files, strings.TrimSuffix(files.String(), "\n"))
}

func written(o plan.Object, w plan.Write) audit.Record {
	return about(o, audit.Written, fmt.Sprintf("wrote %s: %s, %s added, %d removed", w.Path, w.Cause, count(len(w.Added), "certificate"), len(w.Removed))).
		With(audit.Row, string(w.Row)).With(audit.Entry, w.Name).With(audit.Path, w.Path).With(audit.Cause, string(w.Cause)).
		With(audit.Before, w.Before.String()).With(audit.After, w.Digest.String()).
		With(audit.CertsAdded, certLines(w.Added)).With(audit.CertsRemoved, certLines(w.Removed))
}

// certLines lists certificates, one a line: fingerprint and subject.
func certLines(certs []pki.Cert) string {
	lines := make([]string, len(certs))
	for i, c := range certs {
		lines[i] = c.Fingerprint.String() + " " + plan.Printable(c.Subject)
	}
	return strings.Join(lines, "\n")
}

// count is a number of things as a person says it.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

func orNone(d plan.Digest) string {
	if d == (plan.Digest{}) {
		return "none"
	}
	return d.String()
}
