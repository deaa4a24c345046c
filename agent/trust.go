// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/printable"
)

// proofTimeout bounds one connection to the API server with the trust that would be left.
const proofTimeout = 10 * time.Second

// Trust is how the agent itself verifies the API server.
type Trust interface {
	// Use has certs trusted from now on, beside what the identity came with.
	Use(certs []pki.Cert)
	// Prove opens a connection to the API server that trusts certs and nothing else. It says why the
	// server cannot be verified so, or nothing if it can, and fails if nobody answers.
	Prove(ctx context.Context, certs []pki.Cert) (why string, err error)
}

// trust is what a file of trust means for the agent's own connection.
type trust struct {
	verify  Trust // nil: there is none
	proofs  chan proof
	proving bool
	answers map[pki.Fingerprint]string
	used    pki.Fingerprint // what the API server is verified with, as a set
}

// proof is the answer to a plan.Question.
type proof struct {
	set pki.Fingerprint
	why string // the server could not be verified; empty if it was
}

// ask has the API server verified with the certificates that would be left, beside the loop. If those
// that are there do not verify it either, they are not what it is verified with, and may go. The same
// question is asked again after a resync at the earliest.
func (t *trust) ask(q *plan.Question) {
	if q == nil || t.proving || t.verify == nil {
		return
	}
	set := pki.SetDigest(q.Left)
	if _, answered := t.answers[set]; answered {
		return
	}
	t.proving = true
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), proofTimeout)
		defer cancel()
		why, err := t.verify.Prove(ctx, q.Left)
		if err == nil && why != "" {
			if now, e := t.verify.Prove(ctx, q.Now); e == nil && now != "" {
				why = ""
			}
		}
		if err != nil {
			why = err.Error()
		}
		t.proofs <- proof{set: set, why: printable.Text(why)}
	}()
}

// take takes an answer.
func (t *trust) take(p proof) {
	t.proving = false
	if t.answers == nil {
		t.answers = make(map[pki.Fingerprint]string)
	}
	t.answers[p.set] = p.why
}

// use has the API server verified with what the trust source holds on disk.
func (t *trust) use(c pki.Content) {
	if t.verify == nil {
		return
	}
	if set := pki.SetDigest(c.Certs); c.Whole && set != t.used {
		t.verify.Use(c.Certs)
		t.used = set
	}
}
