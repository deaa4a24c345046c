// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/apiserver"
	"github.com/node-cert-agent/node-cert-agent/agent/audit"
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
	there := *g
	there.Cluster = to
	c := m.ownCredential(announced, g.leaf.SerialNumber.Text(16)+"\x00"+m.migration.text, &there)
	if c != nil {
		c.announced = true
	}
	return c
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

// HintAnnotation on the ControllerConfig announces where its cluster is going to be, in JSON:
//
//	{"server": "https://HOST:PORT", "certificateAuthorityData": "BASE64 OF PEM"}
//
// Without CAs those that are known now are meant.
const HintAnnotation = "node-cert-agent.io/cluster"

// hint is the last announcement that could be read.
type hint struct {
	Server string `json:"server"`
	CA     []byte `json:"certificateAuthorityData,omitempty"`
}

func parseHint(text []byte) (h hint, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if d.Decode(&h) != nil || d.Decode(&struct{}{}) != io.EOF {
		return hint{}, errors.New("is not the JSON object with server and certificateAuthorityData")
	}
	u, err := url.Parse(h.Server)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return hint{}, errors.New("has a server that is not https://host[:port][/path]")
	}
	if len(h.CA) > 0 && !apiserver.HoldsCA(h.CA) {
		return hint{}, errors.New("has certificateAuthorityData without a CA")
	}
	return h, nil
}

// cluster is what the hint says of a cluster that was at from. Where the host pins CAs, the ControllerConfig's word
// counts for pinned ones only.
func (h hint) cluster(from apiserver.Cluster, p apiserver.Pins) (apiserver.Cluster, error) {
	to := from
	to.Server = h.Server
	if len(h.CA) > 0 {
		to.CA, to.Pinned, to.ServerName = h.CA, nil, ""
	}
	if len(p) == 0 || len(h.CA) == 0 {
		return to, nil
	}
	to.CA = p.Filter(h.CA)
	if len(to.CA) == 0 {
		return apiserver.Cluster{}, errors.New("has no CA with a pinned key")
	}
	return to, nil
}

// Hint says what the ControllerConfig's HintAnnotation holds now, or that there is none. It may be called at any
// time; the newest counts. A hint is kept as long as the ControllerConfig was last seen with it, and leads
// nowhere before the identity in use, and no other credential, is known at the announced cluster.
func (m *Manager) Hint(text string) {
	replace(m.hints, text)
}

// setHint takes a hint up, durably. One that cannot be read changes nothing: the last one stays.
func (m *Manager) setHint(text string) {
	if !m.opt.FollowHint || text == m.migration.text {
		return
	}
	m.migration.text, m.credentials.polled = text, time.Time{}
	if text == "" {
		if m.reason == m.migration.note {
			m.reason = ""
		}
		m.migration.hint, m.migration.note = nil, ""
		if m.store.dropHint() != nil {
			m.migration.text = "?" // to be heard again
		}
		return
	}
	h, err := parseHint([]byte(text))
	if err == nil {
		err = m.store.keepHint([]byte(text))
	}
	if err != nil {
		m.record(audit.Refused, "the ControllerConfig's announcement of another cluster is not followed",
			audit.Field{Name: audit.Reason, Value: HintAnnotation + " " + err.Error()})
		return
	}
	m.migration.hint = &h
	m.record(audit.ClusterAnnounced, "the ControllerConfig announces that its cluster will be at "+h.Server)
}

// loadHint takes up the hint of an earlier run. What cannot be read is forgotten: the ControllerConfig says it again.
func (m *Manager) loadHint() error {
	data, err := m.store.read(hintFile)
	if err != nil || data == nil {
		return err
	}
	h, err := parseHint(data)
	if err != nil || !m.opt.FollowHint {
		return m.store.dropHint()
	}
	m.migration.text, m.migration.hint = string(data), &h
	return nil
}
