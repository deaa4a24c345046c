// SPDX-License-Identifier: Apache-2.0

package files

import (
	"context"

	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

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
