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
func (m *Manager) requesting(ctx context.Context) transition {
	now := m.opt.Clock.Now()
	if now.Before(m.attempt.backoffUntil) {
		return transition{Requesting, m.reason, min(m.attempt.backoffUntil.Sub(now), m.opt.Times.PollInterval)}
	}
	if !m.attempt.backoffUntil.IsZero() {
		m.attempt.newKey = true
		if err := m.forget(); err != nil {
			return transition{Requesting, err.Error(), m.pause()}
		}
	}
	m.attempt.requester = nil
	switch m.attempt.purpose {
	case migrating:
		m.attempt.requester = m.migrationTarget()
		if m.attempt.requester == nil {
			m.attempt.purpose = bootstrapping
			if err := m.forget(); err != nil {
				return transition{Active, err.Error(), 0} // and the key serves for an early renewal
			}
			return transition{Active, m.reason, 0}
		}
	case bootstrapping:
		m.attempt.requester = m.credentials.next(now)
		if m.attempt.requester == nil {
			return transition{NoCredential, m.credentials.why(), 0}
		}
	}
	if err := m.prepare(); err != nil {
		return transition{Requesting, err.Error(), m.pause()}
	}
	a := m.api.create(ctx, m.conn(), m.attempt.request)
	switch a.verdict() {
	case accepted:
		m.attempt.failures, m.attempt.polls = 0, 0
		m.record(audit.RequestCreated, "asked for a certificate "+m.requesterName(), m.fields()...)
		return transition{Pending, "waiting for approval", m.opt.Times.ApprovalPollMin}
	case exists:
		return transition{Pending, "waiting for approval", 0}
	}
	return m.requestFailed(ctx, Requesting, a)
}

// prepare makes the key durable before it is used, and builds the request.
func (m *Manager) prepare() error {
	if m.attempt.pending == nil {
		key, err := m.key()
		if err != nil {
			return err
		}
		p := &pending{key, requestNotes{m.opt.Node, int32(m.opt.Lifetime / time.Second)}}
		if err := m.store.keepPending(p); err != nil {
			return err
		}
		m.attempt.pending, m.attempt.request = p, request{}
	}
	if m.attempt.request.name == "" {
		pem, err := csr.Build(m.attempt.pending.Node, m.attempt.pending.key, rand.Reader)
		if err != nil {
			return err
		}
		if m.attempt.request, err = m.attempt.pending.request(pem); err != nil {
			return err
		}
	}
	return nil
}

// key is the key of the next request. A lost identity is requested again with its own key: the holder of that key
// takes nothing over, and the approver need not wait until the old identity looks unused. This is done once only: that
// request may be denied, or may exist already and have led to the certificate that the server refuses.
func (m *Manager) key() (*ecdsa.PrivateKey, error) {
	if m.current != nil && m.attempt.purpose == bootstrapping && !m.attempt.newKey {
		return m.current.private()
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %v", err)
	}
	return key, nil
}

// forget gives up the pending key; the next request is another one.
func (m *Manager) forget() error {
	if err := m.store.dropPending(); err != nil {
		return err
	}
	a := &m.attempt
	a.pending, a.request, a.backoffUntil, a.rejected = nil, request{}, time.Time{}, false
	return nil
}
