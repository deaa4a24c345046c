// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"fmt"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/apiserver"
	"github.com/node-cert-agent/node-cert-agent/agent/audit"
)

// proving asks the server, over a fresh connection with the new certificate, who we are.
func (m *Manager) proving(ctx context.Context) transition {
	conn, err := m.open(m.attempt.fresh)
	if err != nil {
		return m.deny("what was issued cannot be used: " + err.Error())
	}
	a := m.api.whoami(ctx, conn)
	v := a.verdict()
	m.attempt.rejected = v == unknown
	if v == accepted && a.user == m.user() {
		return m.commit(ctx, conn)
	}
	conn.Close()
	late := m.opt.Clock.Now().After(m.attempt.proveBy)
	switch {
	case a.untrusted && len(m.pins) > 0 && m.discoverCA(ctx, &m.attempt.fresh.Cluster) == nil:
		return transition{Proving, a.reason, 0}
	case v == accepted:
		return m.deny(fmt.Sprintf("the server takes the new certificate for %.128q", a.user))
	case v == unknown && late:
		return m.deny("the server does not know the new certificate: " + a.reason)
	case late:
		// Nobody is there to prove it to. The request and its certificate stay; meanwhile others may be asked.
		m.attempt.fresh = nil
		if m.attempt.purpose == bootstrapping {
			m.credentials.skip(m.attempt.requester)
		}
		return transition{Requesting, "the new certificate could not be proven: " + a.reason, m.pause() + a.after}
	}
	return transition{Proving, "the new certificate is not accepted yet: " + a.reason, m.pause() + a.after}
}

// commit makes the proven identity durable and puts it to use. Only then does anything old go.
func (m *Manager) commit(ctx context.Context, c *apiserver.Conn) transition {
	if err := m.store.commit(m.attempt.fresh, m.current); err != nil {
		c.Close()
		return transition{Proving, err.Error(), m.pause()}
	}
	kind, message := audit.IdentityProven, "the API server knows this node as "+m.user()
	if m.attempt.purpose == renewing {
		kind, message = audit.IdentityRenewed, "the identity was renewed"
	}
	if m.current != nil {
		m.previous = m.current
	}
	m.use(ctx, m.attempt.fresh, c)
	m.health.proven = true
	if m.health.renewalAllowed {
		m.health.probeAt = m.opt.Clock.Now().Add(m.opt.Times.CheckInterval)
	}
	m.attempt.fresh, m.attempt.denials, m.attempt.notFound = nil, 0, 0
	m.record(kind, message, m.certificate(m.current)...)
	m.store.dropReset()
	if err := m.forget(); err != nil {
		m.attempt.pending = nil // the next start finds that its certificate is in use, and forgets it then
	}
	m.consume(ctx)
	return transition{Active, m.note(), m.untilNext()}
}

func (m *Manager) certificate(g *generation) []audit.Field {
	return append(m.fields(), audit.Field{Name: audit.Serial, Value: g.leaf.SerialNumber.Text(16)},
		audit.Field{Name: audit.Expires, Value: g.leaf.NotAfter.UTC().Format(time.RFC3339)})
}
