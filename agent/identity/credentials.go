// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/apiserver"
	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/bootstrap"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// requester is a credential that may request a certificate: a bootstrap credential, or an identity of ours, which has a
// name and no digest.
type requester struct {
	bootstrap.ID
	content string // what was the content when the connection was made
	config  apiserver.Config
	conn    *apiserver.Conn
	// announced is set for the one that leads where a hint says.
	announced bool
	// refused is until when it is left alone, and why for what reason.
	refused time.Time
	why     string
}

// consumable tells what leads here as a file does, and is taken out of use when it has served.
func (r *requester) consumable() bool { return r.Digest != (plan.Digest{}) }

// credentials are those that can be tried, best first.
type credentials struct {
	list []*requester
	at   int // in list, which is tried next
	// connect opens a connection.
	connect func(apiserver.Config) (*apiserver.Conn, error)
	// pinned is set if pins say which CAs will do, so that a file may state none.
	pinned bool
	// faults says what is wrong with the files that are not in list.
	faults []string
	// polled is when the files were last asked for.
	polled time.Time
	// reported are the refusals that are on record.
	reported map[string]bool
	// consumed is set once nothing is left to be consumed, and cleanupError says why that is not so.
	consumed     bool
	cleanupError string
}

// bootstrapDir is where relative paths in a bootstrap file start.
const bootstrapDir = "/etc/node-cert-agent/bootstrap.d"

// refresh replaces the list: those in first, unless they are nil, then the files. known is the
// cluster that pairs are for, nil if there is none. It reports the files that are new. What is known of
// a file stays known while its content is the same.
func (all *credentials) refresh(first []*requester, files []bootstrap.Credential, known *apiserver.Cluster) (
	fresh []*requester, refused []bootstrap.Credential) {
	list := slices.DeleteFunc(first, func(c *requester) bool { return c == nil })
	all.faults = nil
	for _, f := range files {
		c := all.find(f.Name, f.Digest.String())
		if c != nil && c.config.CAChanged() {
			c = nil // with other CAs it is as good as another file
		}
		if c == nil {
			var err error
			if c, err = all.requester(f, known); err != nil {
				f.Refused = err.Error()
				refused = append(refused, f)
				all.faults = append(all.faults, f.Name+": "+f.Refused)
				continue
			}
			fresh = append(fresh, c)
		}
		list = append(list, c)
	}
	for _, c := range all.list {
		if !slices.Contains(list, c) {
			c.conn.Close()
		}
	}
	all.list = list
	if all.at >= len(list) {
		all.at = 0
	}
	return fresh, refused
}

func (all *credentials) find(name, content string) *requester {
	i := slices.IndexFunc(all.list, func(c *requester) bool { return c.Name == name && c.content == content })
	if i < 0 {
		return nil
	}
	return all.list[i]
}

func (all *credentials) requester(f bootstrap.Credential, known *apiserver.Cluster) (*requester, error) {
	if f.Refused != "" {
		return nil, errors.New(f.Refused)
	}
	c := &requester{ID: f.ID, content: f.Digest.String()}
	var err error
	if f.Name == bootstrap.Kubelet {
		c.Digest = plan.Digest{}
		c.config, err = asPair(f, known)
	} else {
		c.config, err = apiserver.Parse(f.Content.Reveal(), bootstrapDir, all.pinned)
	}
	if err != nil {
		return nil, err
	}
	c.conn, err = all.connect(c.config)
	return c, err
}

// asPair is the configuration for the known cluster with the kubelet's certificate.
func asPair(f bootstrap.Credential, known *apiserver.Cluster) (apiserver.Config, error) {
	if known == nil {
		return apiserver.Config{}, errors.New("says nothing of a cluster, and none is known")
	}
	return known.Config(f.Content.Reveal(), f.Content.Reveal())
}

// next is the credential to try now, or nil if none is left for the moment.
func (all *credentials) next(now time.Time) *requester {
	for i := range all.list {
		c := all.list[(all.at+i)%len(all.list)]
		if !now.Before(c.refused) {
			return c
		}
	}
	return nil
}

// skip lets another one be tried after c.
func (all *credentials) skip(c *requester) {
	if i := slices.Index(all.list, c); i >= 0 {
		all.at = (i + 1) % len(all.list)
	}
}

// why explains that next is nil.
func (all *credentials) why() string {
	reasons := slices.Clone(all.faults)
	for _, c := range all.list {
		reasons = append(reasons, c.Name+": "+c.why)
	}
	if len(reasons) == 0 {
		return "there is no bootstrap file"
	}
	return strings.Join(reasons, "; ")
}

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
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
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
	if g := cmp.Or(m.current, m.previous); g != nil {
		return &g.Cluster
	}
	return nil
}

// previousCredential is the previous identity, as a credential for the next request.
func (m *Manager) previousCredential() *requester {
	const name = "the previous identity"
	if m.previous == nil || m.opt.Clock.Now().After(m.previous.leaf.NotAfter) {
		return nil
	}
	return m.ownCredential(name, m.previous.leaf.SerialNumber.Text(16), m.previous)
}

// ownCredential is an identity of ours as a credential: the one that there is while its content is the same. It is nil
// if no connection can be made with it.
func (m *Manager) ownCredential(name, content string, g *generation) *requester {
	if c := m.credentials.find(name, content); c != nil {
		return c
	}
	conf, err := g.config()
	if err != nil {
		return nil
	}
	conn, err := m.connect(conf)
	if err != nil {
		return nil
	}
	return &requester{ID: bootstrap.ID{Name: name}, content: content, config: conf, conn: conn}
}

// consume takes the credential that the identity came from out of use. If it fails, or the agent is killed before it,
// the next poll tries again: the identity remembers its credential. If the agent is killed after it, the record is
// missing here; the writer has written its own before.
func (m *Manager) consume(ctx context.Context) {
	if m.credentials.consumed || m.current == nil || m.opt.Bootstrap == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
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
