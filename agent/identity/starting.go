// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"errors"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
)

// starting takes up what an earlier run left.
func (m *Manager) starting(ctx context.Context) transition {
	current, err := m.load()
	if err != nil {
		return transition{starting, err.Error(), m.opt.Times.PollInterval}
	}
	if err := m.resume(ctx, current); err != nil {
		return transition{NoCredential, err.Error(), m.opt.Times.PollInterval}
	}
	// What there is, is there for others before anybody is asked for more.
	if m.current == nil {
		return transition{NoCredential, "", 0}
	}
	return transition{Active, "", 0}
}

// load reads what is durable, and gives the best of the identities.
func (m *Manager) load() (current *generation, err error) {
	if m.opt.Node == "" {
		return nil, errors.New("the name of this node is not known")
	}
	var lost [3]string
	if current, lost[0], err = m.store.generation(currentFile); err != nil {
		return nil, err
	}
	if m.previous, lost[1], err = m.store.generation(previousFile); err != nil {
		return nil, err
	}
	if m.attempt.pending, lost[2], err = m.store.pending(); err != nil {
		return nil, err
	}
	for _, what := range lost {
		if what != "" {
			m.record(audit.IdentityLost, "a file of the identity cannot be used: "+what)
		}
	}
	if err := m.loadHint(); err != nil {
		return nil, err
	}
	for _, g := range []*generation{current, m.previous} {
		if g != nil { // a pin that was taken back is trusted no more
			g.Cluster.Pinned = m.pins.Filter(g.Cluster.Pinned)
		}
	}
	if current == nil {
		current, m.previous = m.previous, nil
	}
	return current, nil
}

// resume puts current to use, if there is one that can be.
func (m *Manager) resume(ctx context.Context, current *generation) error {
	if current == nil {
		return nil
	}
	m.current = current // whose cluster is the one that is known
	c, err := m.open(current)
	if err != nil {
		m.record(audit.IdentityLost, "the identity cannot be used: "+err.Error())
		m.current, m.previous = nil, current
		return nil
	}
	m.use(ctx, current, c)
	// Nothing is needed from there now, and asking may have to start the writer first.
	m.credentials.polled = m.opt.Clock.Now().Add(m.opt.Times.PollInterval - m.pollInterval())
	if m.attempt.pending == nil || !current.answers(m.attempt.pending) {
		return nil
	}
	// Killed between keeping the certificate and forgetting that its key was pending.
	m.attempt.pending = nil
	return m.store.dropPending()
}
