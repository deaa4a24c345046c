// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
)

// trust is what the cluster publishes of the CAs of its API server, in PEM, beside what came with the identity.
type trust struct {
	used    []byte
	wanted  []byte      // what was last published
	refused atomic.Bool // wanted is not used: it did not verify the server when that was tried
}

// Trust has the API server verified with these CAs too, from now on and on fresh connections: the
// bundle that the cluster publishes for its own API server. They count beside those that the identity
// came with, and for no other cluster. It may be called at any time; the last call counts.
func (k *Keeper) Trust(bundle []byte) {
	select {
	case <-k.trusts:
	default:
	}
	k.trusts <- bundle // there is room: nobody else sends
}

// Prove connects anew to the API server that the identity is for, with these CAs and no others, and
// says why the server cannot be verified so, or nothing if it can. It fails if nobody answers. No
// credential is sent.
func (k *Keeper) Prove(ctx context.Context, bundle []byte) (why string, err error) {
	return k.transport.Prove(ctx, bundle)
}

// trusting gives the CAs to verify this server with, beside its own: what one cluster publishes says
// nothing of another.
func (k *Keeper) trusting(server string) []byte {
	if c := k.known(); c != nil && c.Server == server {
		return k.trust.used
	}
	return nil
}

// setTrust takes up what is published now, and goes over to it as soon as that verifies the server.
func (k *Keeper) setTrust(ctx context.Context, bundle []byte) {
	k.trust.wanted = bundle
	if err := k.adoptTrust(ctx); err != nil {
		k.tell(audit.Error, "the published trust does not verify the API server; the former stays in use until it does",
			audit.Field{Name: audit.Reason, Value: err.Error()})
	}
}

// adoptTrust has what is published verify the server, from now on. The way to the server that is in use is only given
// up for one that verifies the server too, or while nobody answers. Where the server rotates after the others it
// is tried again, with each probe and when others cannot verify it.
func (k *Keeper) adoptTrust(ctx context.Context) error {
	if bytes.Equal(k.trust.used, k.trust.wanted) {
		k.trust.refused.Store(false)
		return nil
	}
	before := k.trust.used
	k.trust.used = k.trust.wanted
	if k.current == nil {
		return nil
	}
	c, err := k.open(k.current)
	if err == nil {
		if a := k.api.whoami(ctx, c); a.untrusted {
			c.Close()
			err = errors.New(a.reason)
		}
	}
	k.trust.refused.Store(err != nil)
	if err != nil {
		k.trust.used = before
		return err
	}
	k.swap(ctx, c)
	return nil
}
