// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"time"
)

// suspect decides whether the identity is lost. It stays in use: some API server may still know it.
func (k *Keeper) suspect(ctx context.Context) transition {
	since := k.health.refusedSince
	m, h := k.examine(ctx)
	if h == refuted && doubted(since, k.opt.Clock.Now(), k.current.leaf.NotAfter, k.opt.Times.SuspectAfter) {
		k.attempt.purpose, k.credentials.polled = bootstrapping, time.Time{}
		return transition{NoCredential, m.reason, 0}
	}
	if h == unclear || h == unverified {
		// Who could settle it is not there, and perhaps never will be: what leads elsewhere has its turn.
		if k.mayMigrate(ctx) {
			k.attempt.purpose = migrating
			k.migration.preferredUntil = k.opt.Clock.Now().Add(k.opt.Times.Refused)
			return transition{Requesting, "the cluster has moved", 0}
		}
	}
	return m
}

// recheckDelay is the wait for a second opinion.
func (k *Keeper) recheckDelay() time.Duration {
	if k.expired() {
		return k.opt.Times.RetryMin
	}
	return min(max(k.opt.Times.SuspectAfter/4, k.opt.Times.RetryMin), k.opt.Times.RetryMax)
}
