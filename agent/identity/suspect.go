// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"time"
)

// suspect decides whether the identity is lost. It stays in use: some API server may still know it.
func (m *Manager) suspect(ctx context.Context) transition {
	since := m.health.refusedSince
	t, h := m.examine(ctx)
	if h == refuted && doubted(since, m.opt.Clock.Now(), m.current.leaf.NotAfter, m.opt.Times.SuspectAfter) {
		m.attempt.purpose, m.credentials.polled = bootstrapping, time.Time{}
		return transition{NoCredential, t.reason, 0}
	}
	if h == unclear || h == unverified {
		// No server answers, and perhaps none will: a migration has its turn.
		if m.mayMigrate(ctx) {
			m.attempt.purpose = migrating
			m.migration.preferredUntil = m.opt.Clock.Now().Add(m.opt.Times.Refused)
			return transition{Requesting, "the cluster has moved", 0}
		}
	}
	return t
}

// recheckDelay is the wait before a refused identity is checked again.
func (m *Manager) recheckDelay() time.Duration {
	if m.expired() {
		return m.opt.Times.RetryMin
	}
	return min(max(m.opt.Times.SuspectAfter/4, m.opt.Times.RetryMin), m.opt.Times.RetryMax)
}
