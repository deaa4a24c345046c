// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/apiserver"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// open opens a connection for a generation.
func (k *Keeper) open(g *generation) (*apiserver.Conn, error) {
	c, err := g.config()
	if err != nil {
		return nil, err
	}
	return k.connect(c)
}

// connect opens a connection that knows what time it is at least. The signer's clock found the API server's
// certificate valid when it issued ours, so that this makes no server look expired.
func (k *Keeper) connect(c apiserver.Config) (*apiserver.Conn, error) {
	c.Trusted = k.trusting(c.Cluster().Server)
	c.Clock, c.Dial = k.opt.Clock.Now, k.opt.Dial
	for _, g := range []*generation{k.current, k.previous} {
		if g != nil && g.leaf.NotBefore.After(c.NotBefore) {
			c.NotBefore = g.leaf.NotBefore
		}
	}
	return c.Open()
}

// use makes a generation the one in use.
func (k *Keeper) use(ctx context.Context, g *generation, c *apiserver.Conn) {
	k.current, k.state, k.credentials.consumed = g, Active, g.Credential == (plan.Digest{})
	k.attempt.purpose, k.attempt.newKey, k.health.refusedSince = bootstrapping, false, time.Time{}
	k.correctReceipt()
	k.health.renewAt, k.health.probeAt = k.opt.renewal(k.current), k.opt.Clock.Now().Add(k.opt.Times.CheckInterval)
	k.health.proven = false
	if k.expired() || !k.credentials.consumed || !k.health.renewalAllowed {
		// Perhaps only our clock is fast; what has served is consumed only once that is proven; and a
		// fault of RBAC is best known early.
		k.health.probeAt = k.opt.Clock.Now()
	}
	k.swap(ctx, c)
}

// swap puts another connection behind the transport. Who used the one before is told, and may finish.
func (k *Keeper) swap(ctx context.Context, c *apiserver.Conn) {
	old := k.transport.Swap(c)
	select {
	case k.swapped <- struct{}{}:
	default:
	}
	if old == nil {
		return
	}
	old.CloseIdle()
	over := k.opt.Clock.After(k.opt.Times.Retire)
	k.retiring.Go(func() {
		select {
		case <-over:
		case <-ctx.Done():
		}
		old.Close()
	})
}
