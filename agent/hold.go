// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"slices"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// wait records the removals that wait, each once, knows when the first of them is over, and asks what
// has to be known before the trust source shrinks.
func (l *loop) wait(p plan.Plan) {
	now := l.Clock.Now()
	l.release = time.Time{}
	for _, h := range p.Held {
		if !slices.ContainsFunc(l.held, func(o plan.Held) bool { return sameHold(o, h) }) {
			l.Trail.Record(audit.Holding(p.Object, h))
		}
		if at := now.Add(h.Left); h.Left > 0 && (l.release.IsZero() || at.Before(l.release)) {
			l.release = at
		}
	}
	l.held = p.Held
	l.trust.ask(p.Question)
}

func sameHold(a, b plan.Held) bool {
	return a.Key == b.Key && a.Reason == b.Reason && (a.Cert == nil) == (b.Cert == nil) && (a.Cert == nil || a.Cert.Fingerprint == b.Cert.Fingerprint)
}
