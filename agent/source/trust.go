// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"errors"
	"sync"

	"github.com/node-cert-agent/node-cert-agent/agent/pki"
)

// ErrNoIdentity says that there is nobody yet who could speak to the API server.
var ErrNoIdentity = errors.New("this host has no identity yet")

// trust is how the agent's loop has a say in how the API server is verified, whichever identity speaks
// to it at the time. It implements agent.Trust.
type trust struct {
	mu    sync.Mutex
	prove func(ctx context.Context, bundle []byte) (why string, err error) // with the identity in use
	set   func(bundle []byte)                                              // nil where something else maintains the trust
	used  []byte
}

// use takes over how the identity in use tries a bundle, and how its trust is set.
func (t *trust) use(prove func(context.Context, []byte) (string, error), set func([]byte)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.prove, t.set = prove, set
	if set != nil && t.used != nil {
		set(t.used)
	}
}

// Use implements agent.Trust.
func (t *trust) Use(certs []pki.Cert) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.used = bundle(certs)
	if t.set != nil {
		t.set(t.used)
	}
}

// Prove implements agent.Trust.
func (t *trust) Prove(ctx context.Context, certs []pki.Cert) (why string, err error) {
	t.mu.Lock()
	prove := t.prove
	t.mu.Unlock()
	if prove == nil {
		return "", ErrNoIdentity
	}
	return prove(ctx, bundle(certs))
}

func bundle(certs []pki.Cert) (out []byte) {
	for _, c := range certs {
		out = append(out, c.PEM()...)
	}
	return out
}
