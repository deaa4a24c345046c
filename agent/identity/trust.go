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
func (m *Manager) Trust(bundle []byte) {
	replace(m.trusts, bundle)
}

// Prove connects anew to the API server that the identity is for, with these CAs and no others, and
// says why the server cannot be verified so, or nothing if it can. It fails if nobody answers. No
// credential is sent.
func (m *Manager) Prove(ctx context.Context, bundle []byte) (why string, err error) {
	return m.transport.Prove(ctx, bundle)
}

// trustFor gives the CAs to verify this server with, beside those of its cluster: what one cluster publishes says
// nothing of another.
func (m *Manager) trustFor(server string) []byte {
	if c := m.known(); c != nil && c.Server == server {
		return m.trust.used
	}
	return nil
}

// setTrust takes up what is published now, and goes over to it as soon as that verifies the server.
func (m *Manager) setTrust(ctx context.Context, bundle []byte) {
	m.trust.wanted = bundle
	if err := m.adoptTrust(ctx); err != nil {
		m.record(audit.Error, "the published trust does not verify the API server; the former stays in use until it does",
			audit.Field{Name: audit.Reason, Value: err.Error()})
	}
}

// adoptTrust has what is published verify the server, from now on. The way to the server that is in use is only given
// up for one that verifies the server too, or while nobody answers. Where the server rotates after the others it
// is tried again, with each probe and when others cannot verify it.
func (m *Manager) adoptTrust(ctx context.Context) error {
	if bytes.Equal(m.trust.used, m.trust.wanted) {
		m.trust.refused.Store(false)
		return nil
	}
	before := m.trust.used
	m.trust.used = m.trust.wanted
	if m.current == nil {
		return nil
	}
	c, err := m.open(m.current)
	if err == nil {
		if a := m.api.whoami(ctx, c); a.untrusted {
			c.Close()
			err = errors.New(a.reason)
		}
	}
	m.trust.refused.Store(err != nil)
	if err != nil {
		m.trust.used = before
		return err
	}
	m.swap(ctx, c)
	return nil
}
