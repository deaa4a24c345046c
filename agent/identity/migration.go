// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/apiserver"
	"github.com/node-cert-agent/node-cert-agent/agent/bootstrap"
)

// migration is where the ControllerConfig says that its cluster will be.
type migration struct {
	text string // the hint as it was last heard
	hint *hint  // what the last one said that could be read
	note string // what came of it, for the status
	// preferredUntil is until when a renewal that fails gives way to a migration.
	preferredUntil time.Time
}

// migrationTarget is a credential that leads to another cluster than the one where the identity works: the
// cluster has moved. Only a file later in name than the one that led here counts, or that one with
// other content: of two files that are kept, we would else go from one to the other for ever. What a
// file says, which is root's, comes before a hint.
func (m *Manager) migrationTarget() (found *requester) {
	now, from := m.opt.Clock.Now(), m.current.Origin
	for _, c := range m.credentials.list {
		later := c.Name > from.Name || c.Name == from.Name && c.Digest != from.Digest
		switch there := c.config.Cluster(); {
		case now.Before(c.refused) || there.Same(m.current.Cluster):
		case c.consumable() && later:
			return c
		case c.announced && !m.wouldFlapBack(there):
			found = c
		}
	}
	return found
}

// mayMigrate reports whether something leads to another cluster, and where that was only announced, whether we are
// known there.
func (m *Manager) mayMigrate(ctx context.Context) bool {
	c := m.migrationTarget()
	return c != nil && (!c.announced || m.probeTarget(ctx, c))
}

// announced is the name of the identity in use, as a credential at the announced cluster.
const announced = "the present identity, at the announced cluster"

// hintCredential is the identity as a credential for the announced cluster; nil if there is none, or if the identity
// is for that cluster already. It has a certificate and no token: the server cannot use what is sent there.
func (m *Manager) hintCredential() *requester {
	g := cmp.Or(m.current, m.previous)
	if m.migration.hint == nil || g == nil {
		return nil
	}
	to, err := m.migration.hint.cluster(g.Cluster, m.pins)
	if err != nil {
		m.migration.note = "the announced cluster " + err.Error()
		return nil
	}
	if to.Same(g.Cluster) {
		m.migration.note = ""
		return nil
	}
	content := g.leaf.SerialNumber.Text(16) + "\x00" + m.migration.text
	if c := m.credentials.find(announced, content); c != nil {
		return c
	}
	there := *g
	there.Cluster = to
	conf, err := there.config()
	if err != nil {
		return nil
	}
	conn, err := m.connect(conf)
	if err != nil {
		return nil
	}
	return &requester{ID: bootstrap.ID{Name: announced}, content: content, config: conf, conn: conn, announced: true}
}

// probeTarget asks the announced cluster whether it knows us, before a certificate is requested there. If it does
// not, it is not asked again for a time, and the identity stays at its cluster.
func (m *Manager) probeTarget(ctx context.Context, c *requester) bool {
	a := m.api.whoami(ctx, c.conn)
	wait := m.opt.Times.RetryMax
	switch {
	case a.verdict() == accepted && a.user == m.user():
		m.migration.note = ""
		return true
	case a.verdict() == accepted:
		a.reason = fmt.Sprintf("the server takes our certificate for %.128q", a.user)
		fallthrough
	case a.status != 0:
		wait = m.opt.Times.Refused
	}
	m.leaveAlone(c, max(wait, a.after), a.reason)
	m.migration.note = "the announced cluster does not take us yet: " + a.reason
	return false
}

// wouldFlapBack reports whether the hint leads back to the cluster that the identity has just left. Without it, two
// clusters that announce each other would be visited in turn without a pause.
func (m *Manager) wouldFlapBack(to apiserver.Cluster) bool {
	recent := m.opt.Clock.Now().Before(m.current.Received.Add(m.opt.Times.IdlePollInterval))
	return m.previous != nil && to.Same(m.previous.Cluster) && recent
}
