// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"fmt"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/apiserver"
	"github.com/node-cert-agent/node-cert-agent/agent/audit"
)

// proving asks over a connection that nobody has used who we are with the new certificate.
func (k *Keeper) proving(ctx context.Context) transition {
	conn, err := k.open(k.attempt.fresh)
	if err != nil {
		return k.deny("what was issued cannot be used: " + err.Error())
	}
	a := k.api.whoami(ctx, conn)
	v := a.verdict()
	k.attempt.rejected = v == unknown
	if v == accepted && a.user == k.user() {
		return k.commit(ctx, conn)
	}
	conn.Close()
	late := k.opt.Clock.Now().After(k.attempt.proveBy)
	switch {
	case a.untrusted && len(k.pins) > 0 && k.discoverCA(ctx, &k.attempt.fresh.Cluster) == nil:
		return transition{Proving, a.reason, 0}
	case v == accepted:
		return k.deny(fmt.Sprintf("the server takes the new certificate for %.128q", a.user))
	case v == unknown && late:
		return k.deny("the server does not know the new certificate: " + a.reason)
	case late:
		// Nobody is there to prove it to. The request and its certificate stay; meanwhile others may be asked.
		k.attempt.fresh = nil
		if k.attempt.purpose == bootstrapping {
			k.credentials.skip(k.attempt.requester)
		}
		return transition{Requesting, "the new certificate could not be proven: " + a.reason, k.pause() + a.after}
	}
	return transition{Proving, "the new certificate is not accepted yet: " + a.reason, k.pause() + a.after}
}

// commit makes the proven identity durable and puts it to use. Only then does anything old go.
func (k *Keeper) commit(ctx context.Context, c *apiserver.Conn) transition {
	if err := k.store.commit(k.attempt.fresh, k.current); err != nil {
		c.Close()
		return transition{Proving, err.Error(), k.pause()}
	}
	kind, message := audit.IdentityProven, "the API server knows this node as "+k.user()
	if k.attempt.purpose == renewing {
		kind, message = audit.IdentityRenewed, "the identity was renewed"
	}
	if k.current != nil {
		k.previous = k.current
	}
	k.use(ctx, k.attempt.fresh, c)
	k.health.proven = true
	if k.health.renewalAllowed {
		k.health.probeAt = k.opt.Clock.Now().Add(k.opt.Times.CheckInterval)
	}
	k.attempt.fresh, k.attempt.denials, k.attempt.notFound = nil, 0, 0
	k.tell(kind, message, k.certificate(k.current)...)
	k.store.dropReset()
	if err := k.forget(); err != nil {
		k.attempt.pending = nil // the next start finds that its certificate is in use, and forgets it then
	}
	k.consume(ctx)
	return transition{Active, k.remarks(), k.untilNext()}
}

func (k *Keeper) certificate(g *generation) []audit.Field {
	return append(k.fields(), audit.Field{Name: audit.Serial, Value: g.leaf.SerialNumber.Text(16)},
		audit.Field{Name: audit.Expires, Value: g.leaf.NotAfter.UTC().Format(time.RFC3339)})
}
