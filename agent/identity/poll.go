// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/apiserver"
	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/bootstrap"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// pollCredentials asks the writer for bootstrap files, if it is time to. A new file ends the pause after a denial: an
// operator has acted.
func (m *Manager) pollCredentials(ctx context.Context) {
	now, every := m.opt.Clock.Now(), m.pollInterval()
	if m.opt.Node == "" || !m.credentials.polled.IsZero() && now.Sub(m.credentials.polled) < every {
		return
	}
	files, err := m.files(ctx)
	if err != nil {
		m.credentials.faults = []string{"asking for bootstrap files: " + err.Error()}
		m.credentials.polled = now.Add(m.opt.Times.PollInterval - every)
		return
	}
	m.credentials.polled = now
	fresh, refused := m.credentials.refresh([]*requester{m.previousCredential(), m.hintCredential()}, files, m.known())
	if len(fresh) > 0 && !m.attempt.backoffUntil.IsZero() {
		m.attempt.backoffUntil, m.attempt.denials = now, 0
	}
	for _, f := range refused {
		if key := f.Name + "\x00" + f.Digest.String() + "\x00" + f.Refused; !m.credentials.reported[key] {
			m.credentials.reported[key] = true
			m.record(audit.CredentialRefused, "bootstrap file "+f.Name+" cannot be used",
				audit.Field{Name: audit.Credential, Value: f.Name}, audit.Field{Name: audit.Reason, Value: f.Refused})
		}
	}
	if m.health.proven {
		m.consume(ctx)
	}
}

// pollInterval is how often the files are looked at: seldom while there is nothing to do about them.
func (m *Manager) pollInterval() time.Duration {
	works := m.state == Active || m.attempt.purpose == renewing && m.state != Suspect
	preferred := m.opt.Clock.Now().Before(m.migration.preferredUntil)
	if m.credentials.consumed && works && !preferred {
		return m.opt.Times.IdlePollInterval
	}
	return m.opt.Times.PollInterval
}

func (m *Manager) files(ctx context.Context) (files []bootstrap.Credential, err error) {
	if m.opt.Bootstrap != nil {
		if files, err = m.opt.Bootstrap.Bootstrap(ctx); err != nil {
			return nil, err
		}
	}
	if m.opt.Credential.Len() > 0 {
		id := bootstrap.ID{Name: "systemd credential"} // of which there is nothing to consume
		files = append(files, bootstrap.Credential{ID: id, Content: m.opt.Credential})
	}
	return files, nil
}

// known is the cluster of the current identity, else of the previous one.
func (m *Manager) known() *apiserver.Cluster {
	for _, g := range []*generation{m.current, m.previous} {
		if g != nil {
			return &g.Cluster
		}
	}
	return nil
}

// previousCredential is the previous identity, as a credential for the next request.
func (m *Manager) previousCredential() *requester {
	const name = "the previous identity"
	if m.previous == nil || m.opt.Clock.Now().After(m.previous.leaf.NotAfter) {
		return nil
	}
	serial := m.previous.leaf.SerialNumber.Text(16)
	if c := m.credentials.find(name, serial); c != nil {
		return c
	}
	c, err := m.previous.config()
	if err != nil {
		return nil
	}
	conn, err := m.connect(c)
	if err != nil {
		return nil
	}
	return &requester{ID: bootstrap.ID{Name: name}, content: serial, config: c, conn: conn}
}

// consume takes the credential that the identity came from out of use. If it fails, or the agent is killed before it,
// the next poll tries again: the identity remembers its credential. If the agent is killed after it, the record is
// missing here; the writer has written its own before.
func (m *Manager) consume(ctx context.Context) {
	if m.credentials.consumed || m.current == nil || m.opt.Bootstrap == nil {
		return
	}
	done, err := m.opt.Bootstrap.Consume(ctx, m.current.Credential)
	m.credentials.cleanupError = ""
	if err != nil {
		m.credentials.cleanupError = "the bootstrap credential that has served is still there: " + err.Error()
		return
	}
	if done != "" {
		m.record(audit.CredentialConsumed, "the bootstrap credential has served: "+done,
			audit.Field{Name: audit.Credential, Value: m.current.Credential.String()})
	}
	// The same content may come again, and then it is there to be used.
	settled := *m.current
	settled.Credential = plan.Digest{}
	if err := m.store.write(currentFile, &settled); err != nil {
		m.credentials.cleanupError = err.Error()
		return
	}
	m.current, m.credentials.consumed = &settled, true
}
