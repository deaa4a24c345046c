// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/apiserver"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// open opens a connection for a generation.
func (m *Manager) open(g *generation) (*apiserver.Conn, error) {
	c, err := g.config()
	if err != nil {
		return nil, err
	}
	return m.connect(c)
}

// connect opens a connection that knows what time it is at least. The signer's clock found the API server's
// certificate valid when it issued ours, so that this makes no server look expired.
func (m *Manager) connect(c apiserver.Config) (*apiserver.Conn, error) {
	c.Trusted = m.trustFor(c.Cluster().Server)
	c.Clock, c.Dial = m.opt.Clock.Now, m.opt.Dial
	for _, g := range []*generation{m.current, m.previous} {
		if g != nil && g.leaf.NotBefore.After(c.NotBefore) {
			c.NotBefore = g.leaf.NotBefore
		}
	}
	return c.Open()
}

// use makes a generation the one in use.
func (m *Manager) use(ctx context.Context, g *generation, c *apiserver.Conn) {
	m.current, m.state, m.credentials.consumed = g, Active, g.Credential == (plan.Digest{})
	m.attempt.purpose, m.attempt.newKey, m.health.refusedSince = bootstrapping, false, time.Time{}
	m.correctReceipt()
	m.health.renewAt, m.health.probeAt = m.opt.renewal(m.current), m.opt.Clock.Now().Add(m.opt.Times.CheckInterval)
	m.health.proven = false
	if m.expired() || !m.credentials.consumed || !m.health.renewalAllowed {
		// Perhaps only our clock is fast; what has served is consumed only once that is proven; and a
		// fault of RBAC is best known early.
		m.health.probeAt = m.opt.Clock.Now()
	}
	m.swap(ctx, c)
}

// swap puts another connection behind the transport. Users of the old one are told, and may finish.
func (m *Manager) swap(ctx context.Context, c *apiserver.Conn) {
	old := m.transport.Swap(c)
	select {
	case m.rotated <- struct{}{}:
	default:
	}
	if old == nil {
		return
	}
	old.CloseIdle()
	over := m.opt.Clock.After(m.opt.Times.Retire)
	m.retiring.Go(func() {
		select {
		case <-over:
		case <-ctx.Done():
		}
		old.Close()
	})
}
