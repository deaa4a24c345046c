// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"fmt"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/apiserver"
	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/secret"
)

// take accepts what was issued, if it is what was asked for.
func (k *Keeper) take(certificate []byte) move {
	g := &generation{cert: certificate, generationNotes: generationNotes{Received: k.opt.Clock.Now().UTC().Round(0)}}
	if k.renewing {
		if g.Cluster = k.current.Cluster; !k.consumed {
			g.Credential = k.current.Credential
		}
	} else {
		g.Cluster, g.Credential = k.asker.config.Cluster(), k.asker.digest
		if k.asker.announced && k.current != nil {
			g.Credential = k.current.Credential // is still to be consumed
		}
	}
	if k.current != nil {
		g.Origin = k.current.Origin
	}
	if k.asker != nil && k.asker.digest != "" {
		g.Origin = origin{k.asker.name, k.asker.digest}
	}
	key, err := k.pending.encode()
	if err == nil {
		var blocks map[string][]byte
		if blocks, err = split(key); err == nil {
			g.key = secret.New(blocks["PRIVATE KEY"])
			err = g.check(k.opt.Node)
		}
	}
	if err != nil {
		return k.deny("what was issued cannot be used: " + err.Error())
	}
	if k.current != nil && g.leaf.Equal(k.current.leaf) {
		k.again = true
		if err := k.forget(); err != nil {
			return move{Requesting, err.Error(), k.pause()}
		}
		return move{Requesting, "the request of the lost certificate is still there", 0}
	}
	k.fresh, k.prove = g, k.opt.Clock.Now().Add(k.opt.Times.Prove)
	k.tell(audit.IdentityIssued, "a certificate was issued", k.certificate(g)...)
	return move{Proving, "", 0}
}

// proving asks over a connection that nobody has used who we are with the new certificate.
func (k *Keeper) proving(ctx context.Context) move {
	l, err := k.open(k.fresh)
	if err != nil {
		return k.deny("what was issued cannot be used: " + err.Error())
	}
	a := k.api.whoami(ctx, l)
	v := a.verdict()
	if v == accepted && a.user == k.user() {
		return k.commit(ctx, l)
	}
	l.Close()
	late := k.opt.Clock.Now().After(k.prove)
	switch {
	case a.untrusted && len(k.pins) > 0 && k.learn(ctx, &k.fresh.Cluster) == nil:
		return move{Proving, a.reason, 0}
	case v == accepted:
		return k.deny(fmt.Sprintf("the server takes the new certificate for %.128q", a.user))
	case v == unknown && late:
		return k.deny("the server does not know the new certificate: " + a.reason)
	case late:
		// Nobody is there to prove it to. The request and its certificate stay; meanwhile others may be asked.
		k.fresh = nil
		if !k.renewing && !k.moving {
			k.ladder.pass(k.asker)
		}
		return move{Requesting, "the new certificate could not be proven: " + a.reason, k.pause() + a.after}
	}
	return move{Proving, "the new certificate is not accepted yet: " + a.reason, k.pause() + a.after}
}

// commit makes the proven identity durable and puts it to use. Only then does anything old go.
func (k *Keeper) commit(ctx context.Context, l *apiserver.Conn) move {
	if err := k.store.commit(k.fresh, k.current); err != nil {
		l.Close()
		return move{Proving, err.Error(), k.pause()}
	}
	kind, message := audit.IdentityProven, "the API server knows this node as "+k.user()
	if k.renewing {
		kind, message = audit.IdentityRenewed, "the identity was renewed"
	}
	if k.current != nil {
		k.previous = k.current
	}
	k.use(ctx, k.fresh, l)
	if k.proven = true; k.renewable {
		k.probe = k.opt.Clock.Now().Add(k.opt.Times.Probe)
	}
	k.fresh, k.denials, k.vanished = nil, 0, 0
	k.tell(kind, message, k.certificate(k.current)...)
	k.store.dropReset()
	if err := k.forget(); err != nil {
		k.pending = nil // the next start finds that its certificate is in use, and forgets it then
	}
	k.consume(ctx)
	return move{Active, k.remarks(), k.untilNext()}
}

func (k *Keeper) certificate(g *generation) []audit.Field {
	return append(k.fields(), audit.Field{Name: audit.Serial, Value: g.leaf.SerialNumber.Text(16)},
		audit.Field{Name: audit.Expires, Value: g.leaf.NotAfter.UTC().Format(time.RFC3339)})
}
