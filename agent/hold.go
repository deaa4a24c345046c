// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"slices"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// proofTimeout bounds one connection to the API server with the trust that would be left.
const proofTimeout = 10 * time.Second

// proof is the answer to a plan.Question.
type proof struct {
	set pki.Fingerprint
	why string // the server could not be verified; empty if it was
}

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
	if p.Question != nil {
		l.ask(*p.Question)
	}
}

func sameHold(a, b plan.Held) bool {
	return a.Key == b.Key && a.Reason == b.Reason && (a.Cert == nil) == (b.Cert == nil) && (a.Cert == nil || a.Cert.Fingerprint == b.Cert.Fingerprint)
}

// ask has the API server verified with the certificates that would be left, beside the loop. If those
// that are there do not verify it either, they are not what it is verified with, and may go. The same
// question is asked again after a resync at the earliest.
func (l *loop) ask(q plan.Question) {
	set := pki.SetDigest(q.Left)
	if _, answered := l.answers[set]; answered || l.proving || l.Trust == nil {
		return
	}
	l.proving = true
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), proofTimeout)
		defer cancel()
		why, err := l.Trust.Prove(ctx, q.Left)
		if err == nil && why != "" {
			if now, e := l.Trust.Prove(ctx, q.Now); e == nil && now != "" {
				why = ""
			}
		}
		if err != nil {
			why = err.Error()
		}
		l.proofs <- proof{set: set, why: plan.Printable(why)}
	}()
}

// proven takes an answer.
func (l *loop) proven(p proof) {
	l.proving = false
	if l.answers == nil {
		l.answers = make(map[pki.Fingerprint]string)
	}
	l.answers[p.set] = p.why
}

// anchor has the API server verified with what the trust source holds on disk.
func (l *loop) anchor() {
	source := l.Policy.Trust.Source
	if source == "" || l.Trust == nil {
		return
	}
	c := l.known.contents[l.known.at[plan.Key{Row: source}]]
	if set := pki.SetDigest(c.Certs); c.Whole && set != l.anchored {
		l.Trust.Use(c.Certs)
		l.anchored = set
	}
}
