// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/csr"
)

// noCredential waits for somebody as whom to ask.
func (k *Keeper) noCredential(ctx context.Context) move {
	if k.current != nil {
		if m, h := k.examine(ctx); h == holds {
			return m
		}
	}
	if k.ladder.next(k.opt.Clock.Now()) != nil {
		return move{Requesting, "", 0}
	}
	return move{NoCredential, k.ladder.why(), k.opt.Times.Look}
}

// requesting makes the request, or finds the one that an earlier try made.
func (k *Keeper) requesting(ctx context.Context) move {
	now := k.opt.Clock.Now()
	if now.Before(k.penalty) {
		return move{Requesting, k.reason, min(k.penalty.Sub(now), k.opt.Times.Look)}
	}
	if !k.penalty.IsZero() {
		k.again = true
		if err := k.forget(); err != nil {
			return move{Requesting, err.Error(), k.pause()}
		}
	}
	switch k.asker = nil; {
	case k.moving:
		if k.asker = k.elsewhere(); k.asker == nil {
			k.moving = false
			if err := k.forget(); err != nil {
				return move{Active, err.Error(), 0} // and the key serves for an early renewal
			}
			return move{Active, k.reason, 0}
		}
	case !k.renewing:
		if k.asker = k.ladder.next(now); k.asker == nil {
			return move{NoCredential, k.ladder.why(), 0}
		}
	}
	if err := k.prepare(); err != nil {
		return move{Requesting, err.Error(), k.pause()}
	}
	a := k.api.create(ctx, k.link(), k.request)
	switch a.verdict() {
	case accepted:
		k.failures, k.looks = 0, 0
		k.tell(audit.RequestCreated, "asked for a certificate "+k.by(), k.fields()...)
		return move{Pending, "waiting for approval", k.opt.Times.PendingMin}
	case exists:
		return move{Pending, "waiting for approval", 0}
	}
	return k.trouble(ctx, Requesting, a)
}

// prepare makes the key durable before anybody hears of it, and builds the request.
func (k *Keeper) prepare() error {
	if k.pending == nil {
		key, err := k.key()
		if err != nil {
			return err
		}
		p := &pending{key, requestNotes{k.opt.Node, int32(k.opt.Lifetime / time.Second)}}
		if err := k.store.keepPending(p); err != nil {
			return err
		}
		k.pending, k.request = p, request{}
	}
	if k.request.name == "" {
		pem, err := csr.Build(k.pending.Node, k.pending.key, rand.Reader)
		if err != nil {
			return err
		}
		if k.request, err = k.pending.request(pem); err != nil {
			return err
		}
	}
	return nil
}

// key is for the next request. An identity that is lost is asked for with the key that it had: whoever
// holds that takes nothing over, and the approver need not wait until the old one looks unused. Once
// only: that request may be denied, or be there and have led to the very certificate that is refused.
func (k *Keeper) key() (*ecdsa.PrivateKey, error) {
	if k.current != nil && !k.renewing && !k.moving && !k.again {
		return k.current.private()
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %v", err)
	}
	return key, nil
}

// forget gives up the pending key; the next request is another one.
func (k *Keeper) forget() error {
	if err := k.store.dropPending(); err != nil {
		return err
	}
	k.pending, k.request, k.penalty = nil, request{}, time.Time{}
	return nil
}

// waiting looks at the request. However long the approver stays away, it is the same object.
func (k *Keeper) waiting(ctx context.Context) move {
	if k.current != nil && !k.renewing && !k.moving && !k.opt.Clock.Now().Before(k.probe) {
		if m, h := k.examine(ctx); h == holds {
			return m // it was an API server that was behind
		}
	}
	if !k.renewing && !slices.Contains(k.ladder.rungs, k.asker) {
		return move{Requesting, "the bootstrap file " + k.asker.name + " is gone", 0}
	}
	a := k.api.get(ctx, k.link(), k.request.name)
	switch a.verdict() {
	case accepted:
		k.failures = 0
	case gone: // the cluster forgets pending requests after a day; most likely it is to be made again
		k.vanished++
		return move{Requesting, "the request is gone", backoff(k.opt.Times.PendingMin, k.opt.Times.PendingMax, k.vanished, k.opt.Rand())}
	default:
		return k.trouble(ctx, Pending, a)
	}
	if !k.request.same(a.request) {
		return k.deny("another request has the name of ours")
	}
	stage, why := a.request.stage()
	switch stage {
	case denied:
		return k.deny(why)
	case issued:
		return k.take(a.request.certificate)
	}
	k.looks++
	return move{Pending, why + ", as " + k.request.name, patience(k.opt.Times.PendingMin, k.opt.Times.PendingMax, k.looks, k.opt.Rand())}
}

// deny makes the pause that a denial asks for. The key stays until it is over, so that a restart
// meets the same denied request and does not ask at once for another.
func (k *Keeper) deny(why string) move {
	wait := backoff(k.opt.Times.DeniedMin, k.opt.Times.DeniedMax, k.denials, k.opt.Rand())
	k.denials++
	k.penalty = k.opt.Clock.Now().Add(wait)
	k.tell(audit.RequestDenied, "the request for a certificate came to nothing", append(k.fields(), audit.Field{Name: audit.Reason, Value: why})...)
	return move{Requesting, fmt.Sprintf("%s; asking again at %s", why, k.penalty.UTC().Format(time.RFC3339)), min(wait, k.opt.Times.Look)}
}
