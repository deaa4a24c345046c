// SPDX-License-Identifier: Apache-2.0

package renew

import (
	"context"
	"fmt"

	"github.com/node-cert-agent/node-cert-agent/renew/pair"
	"github.com/node-cert-agent/node-cert-agent/renew/signer"
)

// Stale are the pairs whose users go on with what they read when they started, each with the reason.
func (o OnDemand) Stale(ctx context.Context) (all []pair.Verdict, err error) {
	seen, err := o.Signer.Inspect(ctx)
	for _, f := range seen.Pairs {
		if v := pair.Judge(f, nil, o.Policy, o.Clock.Now()); v.AtStart && v.Renewable && v.StaleReason() != "" {
			all = append(all, v)
		}
	}
	return all, err
}

// Restart has the users of such pairs ended, and started again by the kubelet: one pair's after the other's is back.
func (o OnDemand) Restart(ctx context.Context) error {
	all, err := o.Stale(ctx)
	if err != nil {
		return err
	}
	for _, v := range all {
		if _, err := o.Signer.Restart(ctx, signer.Change{Pair: v.Name, Leaf: v.Leaf.SHA256}); err != nil {
			return fmt.Errorf("%s: %w", v.Name, err)
		}
		if err := o.back(ctx, v.Name); err != nil {
			return err
		}
		o.Say(Outcome{Pair: v.Name, Result: Restarted, Ends: v.Leaf.NotAfter})
	}
	return nil
}

// back waits until somebody uses a pair again, who started after it was changed.
func (o OnDemand) back(ctx context.Context, name string) error {
	deadline := o.Clock.Now().Add(o.Timeout)
	for {
		seen, err := o.Signer.Inspect(ctx)
		if err != nil {
			return err
		}
		f, _ := named(seen.Pairs, name)
		v := pair.Judge(f, nil, o.Policy, o.Clock.Now())
		if len(f.Users) > 0 && v.StaleReason() == "" {
			return nil
		}
		if !o.Clock.Now().Before(deadline) {
			return fmt.Errorf("%s: who uses it was ended, and is not back after %v", name, o.Timeout)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-o.Clock.After(o.Pause):
		}
	}
}
