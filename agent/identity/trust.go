// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"

	"k8s.io/client-go/transport"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/reply"
)

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
	l := k.door.link.Load()
	if l == nil {
		return "", errNoIdentity
	}
	return verify(ctx, l.config, bundle)
}

// Prove is Keeper.Prove.
func (i *Identity) Prove(ctx context.Context, bundle []byte) (why string, err error) {
	return verify(ctx, i.config, bundle)
}

// verify makes one connection; whatever is answered on it, the server was verified before.
func verify(ctx context.Context, c config, bundle []byte) (why string, err error) {
	tls := c.transport.TLS
	c.pinned, c.trusted = nil, nil
	c.transport = transport.Config{UserAgent: userAgent, Proxy: c.transport.Proxy, TLS: transport.TLSConfig{CAData: bundle, ServerName: tls.ServerName}}
	l, err := newLink(c)
	if err != nil {
		return "", err
	}
	defer l.close()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.server.JoinPath("version").String(), nil)
	if err != nil {
		return "", err
	}
	res, err := newClient(l.rt).Do(req)
	if untrusted(err) {
		return reply.Fact(err), nil
	}
	if err != nil {
		return "", errors.New(reply.Fact(err))
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, maxAnswer))
	_ = res.Body.Close()
	return "", nil
}

// trusting gives the CAs to verify this server with, beside its own: what one cluster publishes says
// nothing of another.
func (k *Keeper) trusting(server string) []byte {
	if c := k.known(); c != nil && c.Server == server {
		return k.trust
	}
	return nil
}

// retrust takes up what is published now, and goes over to it as soon as that verifies the server.
func (k *Keeper) retrust(ctx context.Context, bundle []byte) {
	k.wanted = bundle
	if err := k.goOver(ctx); err != nil {
		k.tell(audit.Trouble, "the published trust does not verify the API server; the former stays in use until it does",
			audit.Field{Name: audit.Reason, Value: err.Error()})
	}
}

// goOver has what is published verify the server, from now on. The way to the server that is in use is only given
// up for one that verifies the server too, or while nobody answers. Where the server rotates after the others it
// is tried again, with each probe and when others cannot verify it.
func (k *Keeper) goOver(ctx context.Context) error {
	if bytes.Equal(k.trust, k.wanted) {
		k.refusedTrust.Store(false)
		return nil
	}
	before := k.trust
	if k.trust = k.wanted; k.current == nil {
		return nil
	}
	l, err := k.open(k.current)
	if err == nil {
		if a := k.api.whoami(ctx, l); a.untrusted {
			l.close()
			err = errors.New(a.reason)
		}
	}
	k.refusedTrust.Store(err != nil)
	if err != nil {
		k.trust = before
		return err
	}
	k.exchange(ctx, l)
	return nil
}
