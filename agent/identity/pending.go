// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"slices"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/secret"
)

// awaitApproval looks at the request. However long the approver stays away, it is the same object.
func (k *Keeper) awaitApproval(ctx context.Context) transition {
	if k.current != nil && k.attempt.purpose == bootstrapping && !k.opt.Clock.Now().Before(k.health.probeAt) {
		if m, h := k.examine(ctx); h == holds {
			return m // it was an API server that was behind
		}
	}
	if k.attempt.purpose != renewing && !slices.Contains(k.credentials.list, k.attempt.requester) {
		return transition{Requesting, "the bootstrap file " + k.attempt.requester.Name + " is gone", 0}
	}
	a := k.api.get(ctx, k.conn(), k.attempt.request.name)
	switch a.verdict() {
	case accepted:
		k.attempt.failures = 0
	case gone: // the cluster forgets pending requests after a day; most likely it is to be made again
		k.attempt.notFound++
		wait := backoff(k.opt.Times.ApprovalPollMin, k.opt.Times.ApprovalPollMax, k.attempt.notFound, k.opt.Rand())
		return transition{Requesting, "the request is gone", wait}
	default:
		return k.requestFailed(ctx, Pending, a)
	}
	if !k.attempt.request.same(a.request) {
		return k.deny("another request has the name of ours")
	}
	stage, why := a.request.stage()
	switch stage {
	case denied:
		return k.deny(why)
	case issued:
		return k.accept(a.request.certificate)
	}
	k.attempt.looks++
	wait := patience(k.opt.Times.ApprovalPollMin, k.opt.Times.ApprovalPollMax, k.attempt.looks, k.opt.Rand())
	return transition{Pending, why + ", as " + k.attempt.request.name, wait}
}

// accept takes what was issued, if it is what was asked for.
func (k *Keeper) accept(certificate []byte) transition {
	g := &generation{cert: certificate, generationNotes: generationNotes{Received: k.opt.Clock.Now().UTC().Round(0)}}
	if k.attempt.purpose == renewing {
		g.Cluster = k.current.Cluster
		if !k.credentials.consumed {
			g.Credential = k.current.Credential
		}
	} else {
		g.Cluster, g.Credential = k.attempt.requester.config.Cluster(), k.attempt.requester.Digest
		if k.attempt.requester.announced && k.current != nil {
			g.Credential = k.current.Credential // is still to be consumed
		}
	}
	if k.current != nil {
		g.Origin = k.current.Origin
	}
	if k.attempt.requester != nil && k.attempt.requester.consumable() {
		g.Origin = k.attempt.requester.ID
	}
	key, err := k.attempt.pending.encode()
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
		k.attempt.newKey = true
		if err := k.forget(); err != nil {
			return transition{Requesting, err.Error(), k.pause()}
		}
		return transition{Requesting, "the request of the lost certificate is still there", 0}
	}
	k.attempt.fresh, k.attempt.proveBy = g, k.opt.Clock.Now().Add(k.opt.Times.Prove)
	k.tell(audit.IdentityIssued, "a certificate was issued", k.certificate(g)...)
	return transition{Proving, "", 0}
}
