// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"cmp"
	"context"
	"net/http"
	"time"
)

// active uses the identity until a check, a renewal or a migration is due.
func (m *Manager) active(ctx context.Context) transition {
	now, reason := m.opt.Clock.Now(), m.reason
	if reason == m.migration.note {
		reason = ""
	}
	m.correctReceipt()
	if !now.Before(m.health.probeAt) && m.dispelled() {
		m.health.probeAt, m.health.lastStatus = now.Add(m.opt.Times.CheckInterval), 0
	}
	if !now.Before(m.health.probeAt) {
		t, h := m.examine(ctx)
		if h == refuted {
			return t
		}
		reason = m.note()
		if h == unverified {
			reason = t.reason
		}
		if h == holds && m.health.lastStatus == http.StatusForbidden {
			reason = "known as " + m.user() + " and not allowed to do what was asked: a fault of RBAC"
			m.health.probeAt = now.Add(2 * m.opt.Times.RetryMax) // who complained tries again before that
		}
		m.health.lastStatus = 0
	}
	if m.attempt.pending != nil && m.current.answers(m.attempt.pending) { // it was not lost after all
		if err := m.forget(); err != nil {
			return transition{Active, err.Error(), m.opt.Times.RetryMax}
		}
	}
	if m.attempt.pending != nil || !now.Before(m.health.renewAt) {
		m.attempt.purpose = renewing
		return transition{Requesting, "", 0}
	}
	if m.mayMigrate(ctx) {
		m.attempt.purpose = migrating
		return transition{Requesting, "the cluster has moved", 0}
	}
	if reason == "" {
		reason = m.note()
	}
	return transition{Active, reason, m.untilNext()}
}

// correctReceipt makes sure that the certificate was not received in the future: the clock was fast then and has been
// corrected since. The renewal is scheduled from the receipt, and would be as late as the clock was fast: after the
// certificate's expiry, if that was more than its lifetime.
func (m *Manager) correctReceipt() {
	now := m.opt.Clock.Now().UTC().Round(0)
	if !m.current.Received.After(now) {
		return
	}
	g := *m.current
	g.Received = now
	// If this cannot be kept, the next start counts anew.
	_ = m.store.write(currentFile, &g)
	m.current, m.health.renewAt = &g, m.opt.renewal(&g)
}

// untilNext is the time until the next renewal, check or poll, while no server rejects the identity.
func (m *Manager) untilNext() time.Duration {
	now, next := m.opt.Clock.Now(), m.credentials.polled.Add(m.pollInterval())
	due := []time.Time{m.health.renewAt, m.health.probeAt}
	for _, c := range m.credentials.list {
		if c.announced && now.Before(c.refused) {
			due = append(due, c.refused)
		}
	}
	for _, t := range due {
		if t.Before(next) {
			next = t
		}
	}
	return next.Sub(now)
}

// note is what status shows beside an identity that works.
func (m *Manager) note() string {
	return cmp.Or(m.health.renewalWarning, m.credentials.cleanupError, m.migration.note)
}
