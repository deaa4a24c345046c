// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"slices"

	"go.uber.org/zap"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/state"
)

// express publishes what a new version of the object changed before anything else is looked at: to
// look at one file takes a fraction of looking at all, which otherwise is a third of the way to the
// disk. It adds and changes and never removes. The pass goes on as if it had not been: it looks at
// every file, these included, and does what is left; but a moment later, because consumers read the new
// file now. After a failure there is no express, because then row by row matters more than time.
func (l *loop) express(ctx context.Context) error {
	d, ok := l.fresh()
	if !ok || l.schedule.failures > 0 {
		return nil
	}
	o, err := observe(ctx, l.Writer, plan.EntryQueries(d.Entries, l.Policy, l.known.at))
	if err != nil {
		return err
	}
	l.known.see(o)
	l.merge(l.observed, o)
	p := plan.Compute(l.input(d, o))
	if p.Empty() || p.Shrinks() && l.Policy.Trust.Slow() {
		return nil // what goes, be it revoked, is forgotten before: see apply
	}
	if p.Holds != nil {
		l.memory.Note(func(s *state.State) { s.Holds = p.Holds })
	}
	if err := l.claim(p); err != nil {
		return nil // the pass meets it again, and knows what can be done without
	}
	if err := l.commitPart(ctx, p); err != nil {
		return err
	}
	for _, e := range d.Entries {
		l.done[e.Key] = e.Digest
	}
	l.entries = l.overlay(l.entries, p.Entries)
	l.schedule.pause()
	return nil
}

// overlay is entries with those of newer in place of what they have for the same file, or at the end.
func (l *loop) overlay(entries, newer []plan.Entry) []plan.Entry {
	entries = slices.Clone(entries)
	at := make(map[string]int, len(entries))
	place := func(e plan.Entry) string {
		if path, ok := l.Policy.Path(e.Key); ok {
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

// catchUp remembers what was published and not yet accounted for, when the agent is stopped in a rest.
func (l *loop) catchUp() {
	if l.schedule.rest.IsZero() || l.desired.Current() == nil || !l.desired.Current().Verified {
		return
	}
	if err := l.memory.Keep(l.desired.Current().Object, l.overlay(l.desired.Current().Entries, l.entries)); err != nil {
		l.Log.Warn("remembering what was published last", zap.Error(err))
	}
}

// fresh is the part of what is desired that neither the last pass that succeeded nor an express since then
// asked for; there is none if that is nothing or all. No row counts as listed, so nothing seems to be missing.
func (l *loop) fresh() (plan.Desired, bool) {
	if l.done == nil || l.desired.Current() == nil {
		return plan.Desired{}, false
	}
	d := *l.desired.Current()
	d.Entries, d.Listed, d.Refused = nil, nil, nil
	for _, e := range l.desired.Current().Entries {
		if l.done[e.Key] != e.Digest {
			d.Entries = append(d.Entries, e)
		}
	}
	return d, len(d.Entries) > 0 && len(d.Entries) < len(l.desired.Current().Entries)
}
