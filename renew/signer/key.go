// SPDX-License-Identifier: Apache-2.0

package signer

import (
	"context"
	"crypto"
	"errors"
	"io"
)

// Key is the private key of a client pair, which stays with the signer. It implements crypto.MessageSigner for TLS
// 1.3 and for nothing else: it signs no digests.
type Key struct {
	ask    func(context.Context, request) (reply, error)
	pair   string
	public crypto.PublicKey
	ctx    context.Context
}

// Key is that of a pair, whose certificate has this public key. It may be used until ctx ends.
func (c *Client) Key(ctx context.Context, pair string, public crypto.PublicKey) crypto.Signer {
	return &Key{ask: c.ask, pair: pair, public: public, ctx: ctx}
}

// Public implements crypto.Signer.
func (k *Key) Public() crypto.PublicKey { return k.public }

// Sign implements crypto.Signer. TLS before 1.3 would call it.
func (k *Key) Sign(io.Reader, []byte, crypto.SignerOpts) ([]byte, error) {
	return nil, errors.New("the signer signs handshakes of TLS 1.3 only")
}

// SignMessage implements crypto.MessageSigner.
func (k *Key) SignMessage(_ io.Reader, message []byte, opts crypto.SignerOpts) ([]byte, error) {
	r, err := k.ask(k.ctx, request{Sign: &Handshake{Pair: k.pair, Message: message, Hash: uint(opts.HashFunc())}})
	if err == nil && len(r.Signature) == 0 {
		err = &Error{Failed, "an answer to another question"}
	}
	return r.Signature, err
}
