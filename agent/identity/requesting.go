// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/csr"
)

// requesting makes the request, or finds the one that an earlier try made.
func (k *Keeper) requesting(ctx context.Context) transition {
	now := k.opt.Clock.Now()
	if now.Before(k.attempt.backoffUntil) {
		return transition{Requesting, k.reason, min(k.attempt.backoffUntil.Sub(now), k.opt.Times.PollInterval)}
	}
	if !k.attempt.backoffUntil.IsZero() {
		k.attempt.newKey = true
		if err := k.forget(); err != nil {
			return transition{Requesting, err.Error(), k.pause()}
		}
	}
	k.attempt.requester = nil
	switch k.attempt.purpose {
	case migrating:
		k.attempt.requester = k.migrationTarget()
		if k.attempt.requester == nil {
			k.attempt.purpose = bootstrapping
			if err := k.forget(); err != nil {
				return transition{Active, err.Error(), 0} // and the key serves for an early renewal
			}
			return transition{Active, k.reason, 0}
		}
	case bootstrapping:
		k.attempt.requester = k.credentials.next(now)
		if k.attempt.requester == nil {
			return transition{NoCredential, k.credentials.why(), 0}
		}
	}
	if err := k.prepare(); err != nil {
		return transition{Requesting, err.Error(), k.pause()}
	}
	a := k.api.create(ctx, k.conn(), k.attempt.request)
	switch a.verdict() {
	case accepted:
		k.attempt.failures, k.attempt.looks = 0, 0
		k.tell(audit.RequestCreated, "asked for a certificate "+k.requesterName(), k.fields()...)
		return transition{Pending, "waiting for approval", k.opt.Times.ApprovalPollMin}
	case exists:
		return transition{Pending, "waiting for approval", 0}
	}
	return k.requestFailed(ctx, Requesting, a)
}

// prepare makes the key durable before anybody hears of it, and builds the request.
func (k *Keeper) prepare() error {
	if k.attempt.pending == nil {
		key, err := k.key()
		if err != nil {
			return err
		}
		p := &pending{key, requestNotes{k.opt.Node, int32(k.opt.Lifetime / time.Second)}}
		if err := k.store.keepPending(p); err != nil {
			return err
		}
		k.attempt.pending, k.attempt.request = p, request{}
	}
	if k.attempt.request.name == "" {
		pem, err := csr.Build(k.attempt.pending.Node, k.attempt.pending.key, rand.Reader)
		if err != nil {
			return err
		}
		if k.attempt.request, err = k.attempt.pending.request(pem); err != nil {
			return err
		}
	}
	return nil
}

// key is for the next request. An identity that is lost is asked for with the key that it had: whoever
// holds that takes nothing over, and the approver need not wait until the old one looks unused. Once
// only: that request may be denied, or be there and have led to the very certificate that is refused.
func (k *Keeper) key() (*ecdsa.PrivateKey, error) {
	if k.current != nil && k.attempt.purpose == bootstrapping && !k.attempt.newKey {
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
	a := &k.attempt
	a.pending, a.request, a.backoffUntil, a.rejected = nil, request{}, time.Time{}, false
	return nil
}
