// SPDX-License-Identifier: Apache-2.0

package renew

import (
	"cmp"
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/node-cert-agent/node-cert-agent/renew/etcd"
	"github.com/node-cert-agent/node-cert-agent/renew/gate"
	"github.com/node-cert-agent/node-cert-agent/renew/inspect"
	"github.com/node-cert-agent/node-cert-agent/renew/lock"
)

// callTimeout bounds one question to one member.
const callTimeout = 3 * time.Second

// Cluster is the etcd that the hosts of a control plane share: where the lock is, where they ask each other, and what
// has to be well.
type Cluster interface {
	lock.Store
	List(ctx context.Context, prefix string, limit int) ([]etcd.KeyValue, error)
	// Look says how the members are.
	Look(context.Context) gate.Look
	Close()
}

// members is a Cluster: a member that answers, and how to ask the others.
type members struct {
	*etcd.Client
	access inspect.Etcd
	config *tls.Config
}

var errNoEtcd = errors.New("there is no etcd that this host can ask for the lock")

// Connect asks the members at the addresses, until one says who the members are. key is that of the client's pair.
func Connect(ctx context.Context, access inspect.Etcd, key crypto.Signer) (Cluster, error) {
	roots := x509.NewCertPool()
	for _, der := range access.Authorities {
		if c, err := x509.ParseCertificate(der); err == nil {
			roots.AddCert(c)
		}
	}
	pair := tls.Certificate{Certificate: access.Chain, PrivateKey: key}
	m := &members{access: access, config: &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }}}
	var failed error
	for _, address := range access.Addresses {
		c, err := m.dial("https://" + address)
		if err == nil {
			if _, err = c.Members(ctx); err == nil {
				m.Client = c
				return m, nil
			}
			c.Close()
		}
		failed = cmp.Or(failed, fmt.Errorf("etcd at %s: %w", address, err))
	}
	return nil, cmp.Or(failed, errors.New("no address of an etcd is known"))
}

// ConnectWith asks the signer how to ask etcd, and connects.
func ConnectWith(ctx context.Context, s Changer) (Cluster, error) {
	seen, err := s.Inspect(ctx)
	if err != nil {
		return nil, err
	}
	if seen.Etcd == nil {
		return nil, errNoEtcd
	}
	key, err := keyOf(ctx, s, *seen.Etcd)
	if err != nil {
		return nil, err
	}
	return Connect(ctx, *seen.Etcd, key)
}

func (m *members) dial(endpoint string) (*etcd.Client, error) {
	return etcd.New(endpoint, m.config, callTimeout)
}

// Look implements Cluster.
func (m *members) Look(ctx context.Context) (l gate.Look) {
	l.Elsewhere = m.access.Elsewhere
	all, err := m.Members(ctx)
	if err != nil {
		return gate.Look{Problem: err.Error()}
	}
	alarms, err := m.Alarms(ctx)
	if err != nil {
		return gate.Look{Problem: err.Error()}
	}
	for _, a := range alarms {
		l.Alarms = append(l.Alarms, fmt.Sprintf("kind %d of member %x", a.Kind, a.Member))
	}
	own, err := m.Status(ctx)
	if err != nil {
		return gate.Look{Problem: err.Error()}
	}
	for _, one := range all {
		l.Members = append(l.Members, m.look(ctx, one, own.Member))
	}
	return l
}

// look asks one member, at the first of its addresses that answers.
func (m *members) look(ctx context.Context, one etcd.Member, own uint64) gate.Member {
	seen := gate.Member{Name: one.Name, Own: one.ID == own && !m.access.Elsewhere, Learner: one.Learner || one.Name == ""}
	if seen.Learner {
		return seen
	}
	seen.Problem = "it has no https address for clients"
	for _, endpoint := range one.ClientURLs {
		if u, err := url.Parse(endpoint); err != nil || u.Scheme != "https" {
			continue
		}
		status, err := m.status(ctx, endpoint)
		switch {
		case err != nil:
			seen.Problem = err.Error()
			continue
		case status.Member != one.ID:
			seen.Problem = "another member answers at " + endpoint
			continue
		}
		seen.Problem, seen.Leader, seen.Applied = "", status.Leader, status.AppliedIndex
		if len(status.Errors) > 0 {
			seen.Problem = status.Errors[0]
		}
		break
	}
	return seen
}

// status asks the member at an endpoint, and has it read through a majority: the rest it would say without one.
func (m *members) status(ctx context.Context, endpoint string) (s etcd.Status, err error) {
	c, err := m.dial(endpoint)
	if err != nil {
		return s, err
	}
	defer c.Close()
	if s, err = c.Status(ctx); err == nil {
		_, err = c.Get(ctx, lock.Key)
	}
	return s, err
}
