// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"cmp"
	"context"
	"net/http"
	"time"
)

// active lives with the identity until something is due.
func (k *Keeper) active(ctx context.Context) transition {
	now, reason := k.opt.Clock.Now(), k.reason
	if reason == k.migration.note {
		reason = ""
	}
	k.correctReceipt()
	if !now.Before(k.health.probeAt) {
		m, h := k.examine(ctx)
		if h == refuted {
			return m
		}
		reason = k.remarks()
		if h == unverified {
			reason = m.reason
		}
		if h == holds && k.health.lastStatus == http.StatusForbidden {
			reason = "known as " + k.user() + " and not allowed to do what was asked: a fault of RBAC"
			k.health.probeAt = now.Add(2 * k.opt.Times.RetryMax) // who complained tries again before that
		}
		k.health.lastStatus = 0
	}
	if k.attempt.pending != nil && k.current.answers(k.attempt.pending) { // it was not lost after all
		if err := k.forget(); err != nil {
			return transition{Active, err.Error(), k.opt.Times.RetryMax}
		}
	}
	if k.attempt.pending != nil || !now.Before(k.health.renewAt) {
		k.attempt.purpose = renewing
		return transition{Requesting, "", 0}
	}
	if k.mayMigrate(ctx) {
		k.attempt.purpose = migrating
		return transition{Requesting, "the cluster has moved", 0}
	}
	if reason == "" {
		reason = k.remarks()
	}
	return transition{Active, reason, k.untilNext()}
}

// correctReceipt makes sure that the certificate was not received in the future: the clock was fast then and has been
// put right. When to renew is counted from the receipt, and would be as late as the clock was fast: after the
// end, if that was more than the life.
func (k *Keeper) correctReceipt() {
	now := k.opt.Clock.Now().UTC().Round(0)
	if !k.current.Received.After(now) {
		return
	}
	g := *k.current
	g.Received = now
	// If this cannot be kept, the next start counts anew.
	_ = k.store.write(currentFile, &g)
	k.current, k.health.renewAt = &g, k.opt.renewal(&g)
}

// untilNext is when an identity that nobody complains about needs attention.
func (k *Keeper) untilNext() time.Duration {
	now, next := k.opt.Clock.Now(), k.credentials.polled.Add(k.pollInterval())
	due := []time.Time{k.health.renewAt, k.health.probeAt}
	for _, c := range k.credentials.list {
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

// remarks is what there is to say of an identity that works.
func (k *Keeper) remarks() string {
	return cmp.Or(k.health.renewalWarning, k.credentials.cleanupError, k.migration.note)
}
