// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/apiserver"
	"github.com/node-cert-agent/node-cert-agent/agent/audit"
)

// active lives with the identity until something is due.
func (k *Keeper) active(ctx context.Context) move {
	now, reason := k.opt.Clock.Now(), k.reason
	if reason == k.remark {
		reason = ""
	}
	k.correct()
	if !now.Before(k.probe) {
		m, h := k.examine(ctx)
		if h == refuted {
			return m
		}
		reason = k.remarks()
		if h == unverified {
			reason = m.reason
		}
		if h == holds && k.complaint == http.StatusForbidden {
			reason = "known as " + k.user() + " and not allowed to do what was asked: a fault of RBAC"
			k.probe = now.Add(2 * k.opt.Times.RetryMax) // who complained tries again before that
		}
		k.complaint = 0
	}
	if k.pending != nil && k.current.answers(k.pending) { // it was not lost after all
		if err := k.forget(); err != nil {
			return move{Active, err.Error(), k.opt.Times.RetryMax}
		}
	}
	if k.pending != nil || !now.Before(k.renew) {
		k.renewing = true
		return move{Requesting, "", 0}
	}
	if c := k.elsewhere(); c != nil && (!c.announced || k.welcome(ctx, c)) {
		k.moving = true
		return move{Requesting, "the cluster has moved", 0}
	}
	if reason == "" {
		reason = k.remarks()
	}
	return move{Active, reason, k.untilNext()}
}

// correct makes sure that the certificate was not received in the future: the clock was fast then and has been
// put right. When to renew is counted from the receipt, and would be as late as the clock was fast: after the
// end, if that was more than the life.
func (k *Keeper) correct() {
	now := k.opt.Clock.Now().UTC().Round(0)
	if !k.current.Received.After(now) {
		return
	}
	g := *k.current
	g.Received = now
	// If this cannot be kept, the next start counts anew.
	_ = k.store.write(currentFile, &g)
	k.current, k.renew = &g, k.opt.renewal(&g)
}

// untilNext is when an identity that nobody complains about needs attention.
func (k *Keeper) untilNext() time.Duration {
	now, next := k.opt.Clock.Now(), k.looked.Add(k.every())
	due := []time.Time{k.renew, k.probe}
	for _, c := range k.ladder.rungs {
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

// health is what a probe found.
type health int

const (
	unclear health = iota // no answer, or one that says nothing about us
	holds
	refuted
	unverified // no CA that is known verifies the server
)

// examine asks on a fresh connection whether the identity holds, and says where that leads.
func (k *Keeper) examine(ctx context.Context) (move, health) {
	now := k.opt.Clock.Now()
	k.probe = now.Add(k.opt.Times.Probe)
	if k.refusedTrust.Load() {
		_ = k.goOver(ctx) // was said when it was published
	}
	l, err := k.open(k.current)
	if err != nil {
		return move{k.state, err.Error(), k.opt.Times.RetryMax}, unclear
	}
	a := k.api.whoami(ctx, l)
	if a.untrusted && len(k.pins) > 0 {
		l.Close()
		l, a = k.mend(ctx, l, a)
	}
	defer l.Close()
	switch v := a.verdict(); {
	case v == accepted && a.user == k.user():
		k.doubt, k.proven = time.Time{}, true
		k.foresee(ctx, l)
		return move{Active, k.remarks(), k.second()}, holds
	case v == accepted:
		a.reason = fmt.Sprintf("the server takes our certificate for %.128q", a.user)
	case a.untrusted:
		return move{k.state, a.reason, k.opt.Times.RetryMax}, unverified
	case v != unknown && v != forbidden:
		return move{k.state, a.reason, k.opt.Times.RetryMax}, unclear
	}
	if k.doubt.IsZero() {
		k.doubt = now
	}
	return move{Suspect, a.reason, k.second()}, refuted
}

// foresee asks, weeks before it matters, whether a renewal would be allowed.
func (k *Keeper) foresee(ctx context.Context, l *apiserver.Conn) {
	if k.renewable {
		return
	}
	a := k.api.mayAsk(ctx, l)
	if a.verdict() != accepted {
		return
	}
	before := k.warning
	if k.renewable, k.warning = a.allowed, ""; !a.allowed {
		k.warning = "a renewal would fail: " + k.user() + " is not allowed to create certificatesigningrequests, a fault of RBAC"
	}
	if k.warning != "" && before == "" {
		k.tell(audit.RenewalForbidden, k.warning)
	}
}

// remarks is what there is to say of an identity that works.
func (k *Keeper) remarks() string {
	return cmp.Or(k.warning, k.leftover, k.remark)
}

// second is the wait for a second opinion.
func (k *Keeper) second() time.Duration {
	if k.expired() {
		return k.opt.Times.RetryMin
	}
	return min(max(k.opt.Times.SuspectAfter/4, k.opt.Times.RetryMin), k.opt.Times.RetryMax)
}

// expired is what our own clock says of the certificate in use.
func (k *Keeper) expired() bool { return k.opt.Clock.Now().After(k.current.leaf.NotAfter) }

// suspect decides whether the identity is lost. It stays in use: some API server may still know it.
func (k *Keeper) suspect(ctx context.Context) move {
	since := k.doubt
	m, h := k.examine(ctx)
	if h == refuted && doubted(since, k.opt.Clock.Now(), k.current.leaf.NotAfter, k.opt.Times.SuspectAfter) {
		k.renewing, k.looked = false, time.Time{}
		return move{NoCredential, m.reason, 0}
	}
	if h == unclear || h == unverified {
		// Who could settle it is not there, and perhaps never will be: what leads elsewhere has its turn.
		if c := k.elsewhere(); c != nil && (!c.announced || k.welcome(ctx, c)) {
			k.renewing, k.moving, k.barred = false, true, k.opt.Clock.Now().Add(k.opt.Times.Refused)
			return move{Requesting, "the cluster has moved", 0}
		}
	}
	return m
}
