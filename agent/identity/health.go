// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"fmt"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/apiserver"
	"github.com/node-cert-agent/node-cert-agent/agent/audit"
)

// health is how the identity in use stands with the server.
type health struct {
	refusedSince   time.Time // zero while it is not refused
	renewAt        time.Time
	probeAt        time.Time
	lastStatus     int    // that others met since the last probe
	proven         bool   // by this process
	renewalAllowed bool   // the server said so
	renewalWarning string // or that it would not be
}

// finding is what a probe found.
type finding int

const (
	unclear finding = iota // no answer, or one that says nothing about us
	holds
	refuted
	unverified // no CA that is known verifies the server
)

// examine asks on a fresh connection whether the identity holds, and says where that leads.
func (k *Keeper) examine(ctx context.Context) (transition, finding) {
	now := k.opt.Clock.Now()
	k.health.probeAt = now.Add(k.opt.Times.CheckInterval)
	if k.trust.refused.Load() {
		_ = k.adoptTrust(ctx) // was said when it was published
	}
	conn, err := k.open(k.current)
	if err != nil {
		return transition{k.state, err.Error(), k.opt.Times.RetryMax}, unclear
	}
	a := k.api.whoami(ctx, conn)
	if a.untrusted && len(k.pins) > 0 {
		conn.Close()
		conn, a = k.rediscoverCA(ctx, conn, a)
	}
	defer conn.Close()
	switch v := a.verdict(); {
	case v == accepted && a.user == k.user():
		k.health.refusedSince, k.health.proven = time.Time{}, true
		k.checkRenewalAllowed(ctx, conn)
		return transition{Active, k.remarks(), k.recheckDelay()}, holds
	case v == accepted:
		a.reason = fmt.Sprintf("the server takes our certificate for %.128q", a.user)
	case a.untrusted:
		return transition{k.state, a.reason, k.opt.Times.RetryMax}, unverified
	case v != unknown && v != forbidden:
		return transition{k.state, a.reason, k.opt.Times.RetryMax}, unclear
	}
	if k.health.refusedSince.IsZero() {
		k.health.refusedSince = now
	}
	return transition{Suspect, a.reason, k.recheckDelay()}, refuted
}

// checkRenewalAllowed asks, weeks before it matters, whether a renewal would be allowed.
func (k *Keeper) checkRenewalAllowed(ctx context.Context, conn *apiserver.Conn) {
	if k.health.renewalAllowed {
		return
	}
	a := k.api.mayAsk(ctx, conn)
	if a.verdict() != accepted {
		return
	}
	before := k.health.renewalWarning
	k.health.renewalAllowed, k.health.renewalWarning = a.allowed, ""
	if !a.allowed {
		k.health.renewalWarning = "a renewal would fail: " + k.user() +
			" is not allowed to create certificatesigningrequests, a fault of RBAC"
	}
	if k.health.renewalWarning != "" && before == "" {
		k.tell(audit.RenewalForbidden, k.health.renewalWarning)
	}
}

// expired is what our own clock says of the certificate in use.
func (k *Keeper) expired() bool { return k.opt.Clock.Now().After(k.current.leaf.NotAfter) }
