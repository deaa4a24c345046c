// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"slices"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/secret"
)

// awaitApproval polls the request. It stays the same object however long the approval takes.
func (m *Manager) awaitApproval(ctx context.Context) transition {
	if m.current != nil && m.attempt.purpose == bootstrapping && !m.opt.Clock.Now().Before(m.health.probeAt) {
		if t, h := m.examine(ctx); h == holds {
			return t // it was an API server that was behind
		}
	}
	if m.attempt.purpose != renewing && !slices.Contains(m.credentials.list, m.attempt.requester) {
		return transition{Requesting, "the bootstrap file " + m.attempt.requester.Name + " is gone", 0}
	}
	a := m.api.get(ctx, m.conn(), m.attempt.request.name)
	m.attempt.polls++
	switch a.verdict() {
	case accepted:
		m.attempt.failures = 0
	case gone: // the cluster forgets pending requests after a day; most likely it is to be made again
		m.attempt.notFound++
		wait := backoff(m.opt.Times.ApprovalPollMin, m.opt.Times.ApprovalPollMax, m.attempt.notFound, m.opt.Rand())
		return transition{Requesting, "the request is gone", wait}
	default:
		t := m.requestFailed(ctx, Pending, a)
		if t.to == Pending { // a server that fails now and then is asked no more often than one that does not
			t.wait = max(t.wait, m.untilNextPoll())
		}
		return t
	}
	if !m.attempt.request.same(a.request) {
		return m.deny("another request has the name of ours")
	}
	stage, why := a.request.stage()
	switch stage {
	case denied:
		return m.deny(why)
	case issued:
		return m.accept(a.request.certificate)
	}
	return transition{Pending, why + ", as " + m.attempt.request.name, m.untilNextPoll()}
}

func (m *Manager) untilNextPoll() time.Duration {
	return pollDelay(m.opt.Times.ApprovalPollMin, m.opt.Times.ApprovalPollMax, m.attempt.polls, m.opt.Rand())
}

// accept takes the issued certificate, if it is what was requested.
func (m *Manager) accept(certificate []byte) transition {
	g := &generation{cert: certificate, generationNotes: generationNotes{Received: m.opt.Clock.Now().UTC().Round(0)}}
	if m.attempt.purpose == renewing {
		g.Cluster = m.current.Cluster
		if !m.credentials.consumed {
			g.Credential = m.current.Credential
		}
	} else {
		g.Cluster, g.Credential = m.attempt.requester.config.Cluster(), m.attempt.requester.Digest
		if m.attempt.requester.announced && m.current != nil {
			g.Credential = m.current.Credential // is still to be consumed
		}
	}
	if m.current != nil {
		g.Origin = m.current.Origin
	}
	if m.attempt.requester != nil && m.attempt.requester.consumable() {
		g.Origin = m.attempt.requester.ID
	}
	key, err := m.attempt.pending.encode()
	if err == nil {
		var blocks map[string][]byte
		if blocks, err = split(key); err == nil {
			g.key = secret.New(blocks["PRIVATE KEY"])
			err = g.check(m.opt.Node)
		}
	}
	if err != nil {
		return m.deny("what was issued cannot be used: " + err.Error())
	}
	if m.current != nil && g.leaf.Equal(m.current.leaf) {
		m.attempt.newKey = true
		if err := m.forget(); err != nil {
			return transition{Requesting, err.Error(), m.pause()}
		}
		return transition{Requesting, "the request of the lost certificate is still there", 0}
	}
	m.attempt.fresh, m.attempt.proveBy = g, m.opt.Clock.Now().Add(m.opt.Times.Prove)
	m.record(audit.IdentityIssued, "a certificate was issued", m.certificate(g)...)
	return transition{Proving, "", 0}
}
