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
	mu     sync.Mutex
	prover prover
	set    func(bundle []byte) // nil where something else maintains the trust
	used   []byte
}

// prover is an identity that can try a bundle.
type prover interface {
	Prove(ctx context.Context, bundle []byte) (why string, err error)
}

// use sets the identity in use, and the function that sets its trust.
func (t *trust) use(p prover, set func([]byte)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.prover, t.set = p, set
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
	p := t.prover
	t.mu.Unlock()
	if p == nil {
		return "", ErrNoIdentity
	}
	return p.Prove(ctx, bundle(certs))
}

func bundle(certs []pki.Cert) (out []byte) {
	for _, c := range certs {
		out = append(out, c.PEM()...)
	}
	return out
}
