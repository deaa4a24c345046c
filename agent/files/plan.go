// SPDX-License-Identifier: Apache-2.0

package files

import (
	"context"
	"slices"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// Plan looks at the host and decides (steps 2 and 3 of ARCHITECTURE.md). What will not be done is recorded, once.
// now is asked after the look, and answers are to what an earlier plan asked.
func (f *Files) Plan(ctx context.Context, d plan.Desired, now func() plan.Moment,
	answers map[pki.Fingerprint]string) (plan.Plan, error) {
	if f.unswept {
		f.Sweep(ctx)
	}
	o, err := observe(ctx, f.Writer, plan.Queries(d, f.Memory.State().Memory, f.Policy, f.cache.at))
	f.observed, f.blind = o, false
	if err != nil {
		return plan.Plan{}, err
	}
	f.cache.learn(o, d)
	p := plan.Compute(f.input(d, o, now(), answers))
	f.recordExceptions(d.ControllerConfig, p)
	f.recordHolds(d.ControllerConfig, p.Held)
	p.Writes = f.deferRepairs(d.Bereft(p.Entries), p.Writes)
	f.entries = p.Entries
	return p, nil
}

// Preview is the plan for d on the host as it is, without any effect.
func Preview(ctx context.Context, w Writer, d plan.Desired, m plan.Memory, p plan.Policy,
	now plan.Moment) (plan.Plan, error) {
	o, err := observe(ctx, w, plan.Queries(d, m, p, nil))
	if err != nil {
		return plan.Plan{}, err
	}
	return plan.Compute(plan.Input{Desired: d, Observed: o, Memory: m, Policy: p, Now: now}), nil
}

// input is all that a decision about d depends on.
func (f *Files) input(d plan.Desired, o plan.Observed, now plan.Moment, answers map[pki.Fingerprint]string) plan.Input {
	return plan.Input{Desired: d, Observed: o, Memory: f.Memory.State().Memory, Policy: f.Policy, Now: now,
		Known: f.cache.contents, Answers: answers, Unsynced: f.unsynced}
}

// recordExceptions records what is refused or retained, once.
func (f *Files) recordExceptions(o plan.ControllerConfig, p plan.Plan) {
	for _, r := range news(f.refused, p.Refused) {
		f.Trail.Record(audit.Exception(o, audit.Refused, r))
	}
	for _, k := range news(f.retained, p.Retained) {
		f.Trail.Record(audit.Exception(o, audit.Retained, k))
	}
	f.refused, f.retained = p.Refused, p.Retained
}

// news gives what is in now and was not in before, so that a refusal is recorded once and not at
// every reconcile.
func news(before, now []plan.Refusal) []plan.Refusal {
	return slices.DeleteFunc(slices.Clone(now), func(r plan.Refusal) bool { return slices.Contains(before, r) })
}

// recordHolds records the removals that wait, each once, and knows when the first of them is over.
func (f *Files) recordHolds(o plan.ControllerConfig, held []plan.Held) {
	now := f.Clock.Now()
	f.release = time.Time{}
	for _, h := range held {
		if !slices.ContainsFunc(f.held, func(was plan.Held) bool { return sameHold(was, h) }) {
			f.Trail.Record(audit.Holding(o, h))
		}
		if at := now.Add(h.Left); h.Left > 0 && (f.release.IsZero() || at.Before(f.release)) {
			f.release = at
		}
	}
	f.held = held
}

func sameHold(a, b plan.Held) bool {
	return a.Key == b.Key && a.Reason == b.Reason && (a.Cert == nil) == (b.Cert == nil) &&
		(a.Cert == nil || a.Cert.Fingerprint == b.Cert.Fingerprint)
}
