// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/apiserver"
	"github.com/node-cert-agent/node-cert-agent/agent/audit"
)

// health is what the server last said of the identity in use.
type health struct {
	refusedSince   time.Time // zero while it is not refused
	renewAt        time.Time
	probeAt        time.Time
	lastStatus     int    // that others met since the last probe
	proven         bool   // by this process
	renewalAllowed bool   // the server said so
	renewalWarning string // or that it would not be
}

// doubt has the identity probed, because others met this status. What is forbidden is often so for a moment only: an
// API server that starts has read no roles yet, and a fleet shall not ask it who everybody is.
func (m *Manager) doubt(status int) {
	at := m.opt.Clock.Now()
	if status == http.StatusForbidden {
		at = at.Add(m.opt.Times.Forbidden)
	}
	if at.Before(m.health.probeAt) {
		m.health.probeAt, m.health.lastStatus = at, status
	}
}

// dispelled tells whether the doubt is over: what was forbidden, or something else, has succeeded since.
func (m *Manager) dispelled() bool {
	return m.health.lastStatus == http.StatusForbidden && m.served.Load()
}

// finding is what a probe found.
type finding int

const (
	unclear finding = iota // no answer, or one that says nothing about us
	holds
	refuted
	unverified // no CA that is known verifies the server
)

// examine asks on a fresh connection whether the server accepts the identity, and gives the transition that follows.
func (m *Manager) examine(ctx context.Context) (transition, finding) {
	now := m.opt.Clock.Now()
	m.health.probeAt = now.Add(m.opt.Times.CheckInterval)
	if m.trust.refused.Load() {
		_ = m.adoptTrust(ctx) // was said when it was published
	}
	conn, err := m.open(m.current)
	if err != nil {
		return transition{m.state, err.Error(), m.opt.Times.RetryMax}, unclear
	}
	a := m.api.whoami(ctx, conn)
	if a.untrusted && len(m.pins) > 0 {
		conn.Close()
		conn, a = m.rediscoverCA(ctx, conn, a)
	}
	defer conn.Close()
	switch v := a.verdict(); {
	case v == accepted && a.user == m.user():
		m.health.refusedSince, m.health.proven = time.Time{}, true
		m.checkRenewalAllowed(ctx, conn)
		return transition{Active, m.note(), m.recheckDelay()}, holds
	case v == accepted:
		a.reason = fmt.Sprintf("the server takes our certificate for %.128q", a.user)
	case a.untrusted:
		return transition{m.state, a.reason, m.opt.Times.RetryMax}, unverified
	case v != unknown && v != forbidden:
		return transition{m.state, a.reason, m.opt.Times.RetryMax}, unclear
	}
	if m.health.refusedSince.IsZero() {
		m.health.refusedSince = now
	}
	return transition{Suspect, a.reason, m.recheckDelay()}, refuted
}

// checkRenewalAllowed asks, weeks before it matters, whether a renewal would be allowed.
func (m *Manager) checkRenewalAllowed(ctx context.Context, conn *apiserver.Conn) {
	if m.health.renewalAllowed {
		return
	}
	a := m.api.mayAsk(ctx, conn)
	if a.verdict() != accepted {
		return
	}
	before := m.health.renewalWarning
	m.health.renewalAllowed, m.health.renewalWarning = a.allowed, ""
	if !a.allowed {
		m.health.renewalWarning = "a renewal would fail: " + m.user() +
			" is not allowed to create certificatesigningrequests, a fault of RBAC"
	}
	if m.health.renewalWarning != "" && before == "" {
		m.record(audit.RenewalForbidden, m.health.renewalWarning)
	}
}

// expired is what our own clock says of the certificate in use.
func (m *Manager) expired() bool { return m.opt.Clock.Now().After(m.current.leaf.NotAfter) }
