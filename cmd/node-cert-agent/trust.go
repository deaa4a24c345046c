// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"sync"

	"github.com/node-cert-agent/node-cert-agent/agent/pki"
)

// trust is how the agent's loop has a say in how the API server is verified, whichever identity speaks
// to it at the time. It implements agent.Trust.
type trust struct {
	mu    sync.Mutex
	as    prover
	trust func(bundle []byte) // nil where something else maintains the trust
	used  []byte
}

// prover is an identity that can try a bundle.
type prover interface {
	Prove(ctx context.Context, bundle []byte) (why string, err error)
}

// speaks says who does from now on.
func (t *trust) speaks(as prover, use func([]byte)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.as, t.trust = as, use
	if use != nil && t.used != nil {
		use(t.used)
	}
}

// Use implements agent.Trust.
func (t *trust) Use(certs []pki.Cert) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.used = bundle(certs); t.trust != nil {
		t.trust(t.used)
	}
}

// Prove implements agent.Trust.
func (t *trust) Prove(ctx context.Context, certs []pki.Cert) (why string, err error) {
	t.mu.Lock()
	as := t.as
	t.mu.Unlock()
	if as == nil {
		return "", errNoIdentity
	}
	return as.Prove(ctx, bundle(certs))
}

func bundle(certs []pki.Cert) (out []byte) {
	for _, c := range certs {
		out = append(out, c.PEM()...)
	}
	return out
}
