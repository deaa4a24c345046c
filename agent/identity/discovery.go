// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"strings"

	"github.com/node-cert-agent/node-cert-agent/agent/apiserver"
	"github.com/node-cert-agent/node-cert-agent/agent/audit"
)

// discoverCA looks for the pinned CAs of a cluster whose server cannot be verified with what is known, and
// puts them in the place of those that pins had found before. It is an error if there are none, or no
// others.
func (m *Manager) discoverCA(ctx context.Context, c *apiserver.Cluster) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	cas, bundle, err := m.pins.Discover(ctx, *c, m.opt.Dial)
	if err != nil {
		return err
	}
	c.Pinned = bundle
	m.record(audit.CAPinned, "a CA with a pinned key is trusted for "+c.Server,
		audit.Field{Name: audit.CertsAdded, Value: fingerprints(cas)})
	return nil
}

func fingerprints(certs []*x509.Certificate) string {
	all := make([]string, len(certs))
	for i, c := range certs {
		sum := sha256.Sum256(c.Raw)
		all[i] = "sha256:" + hex.EncodeToString(sum[:])
	}
	return strings.Join(all, " ")
}

// rediscoverFor finds other CAs for the server of the credential in hand.
func (m *Manager) rediscoverFor(ctx context.Context) error {
	c := m.attempt.requester.config.Cluster()
	if err := m.discoverCA(ctx, &c); err != nil {
		return err
	}
	m.attempt.requester.config.Pinned = c.Pinned
	conn, err := m.connect(m.attempt.requester.config)
	if err != nil {
		return err
	}
	m.attempt.requester.conn.Close()
	m.attempt.requester.conn = conn
	return nil
}

// rediscoverCA finds other CAs for the server of the identity in use, which failed with a. It gives the connection
// and the answer that came of it. Only a server that then knows us by our name is believed from now on, and
// that is durable first.
func (m *Manager) rediscoverCA(ctx context.Context, failed *apiserver.Conn, a answer) (*apiserver.Conn, answer) {
	g := *m.current
	if err := m.discoverCA(ctx, &g.Cluster); err != nil {
		a.reason += "; " + err.Error()
		return failed, a
	}
	conn, err := m.open(&g)
	if err != nil {
		a.reason += "; " + err.Error()
		return failed, a
	}
	if a = m.api.whoami(ctx, conn); a.verdict() != accepted || a.user != m.user() {
		return conn, a
	}
	used, err := m.open(&g)
	if err == nil {
		err = m.store.write(currentFile, &g)
	}
	if err != nil {
		return conn, answer{reason: err.Error()}
	}
	m.use(ctx, &g, used)
	return conn, a
}
