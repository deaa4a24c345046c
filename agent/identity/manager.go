// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/apiserver"
	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/csr"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/printable"
)

// Manager gets an identity and keeps it: from a bootstrap credential over a request for a certificate
// to the proof that the API server knows us by it, and back whenever that ends. Make it with New.
//
// It never gives up and never exits; what is missing is a state with a reason and a next try. A
// working identity stays in use until its successor has been proven on a fresh connection, and stays
// on disk beside it. Whatever it has to remember is durable before it is needed: it may be killed at
// any moment.
type Manager struct {
	opt       Options
	pins      apiserver.Pins
	api       api
	store     store
	transport *apiserver.Rotating
	retiring  sync.WaitGroup // connections of replaced identities

	// What others say, and what they are told. Each holds the newest only.
	rejected chan int    // the status that cast doubt on the identity
	served   atomic.Bool // a request has succeeded since one was forbidden
	hints    chan string
	trusts   chan []byte
	rotated  chan struct{}
	readings chan Status

	state    State
	reason   string
	current  *generation // nil if there is none
	previous *generation

	attempt     attempt
	health      health
	migration   migration
	credentials credentials
	trust       trust
}

// New makes a Manager; Run makes it work.
func New(o Options) *Manager {
	o = o.withDefaults()
	m := &Manager{
		opt: o, pins: apiserver.ParsePins(o.Pins), api: api{o.Clock}, store: store{o.Dir, o.Node}, state: starting,
		rejected: make(chan int, 1), hints: make(chan string, 1), trusts: make(chan []byte, 1),
		rotated: make(chan struct{}, 1), readings: make(chan Status, 1),
	}
	m.credentials = credentials{connect: m.connect, pinned: len(m.pins) > 0, reported: make(map[string]bool)}
	m.transport = apiserver.NewRotating(m.answered)
	return m
}

// answered hears the status of each answer to a request under the identity. What casts doubt on it is looked into.
func (m *Manager) answered(status int) {
	switch {
	case status == 0 && len(m.pins) == 0 && !m.trust.refused.Load():
		return // asking again would not help
	case status == http.StatusForbidden:
		m.served.Store(false)
	case status != 0 && status != http.StatusUnauthorized:
		if status < 300 {
			m.served.Store(true)
		}
		return
	}
	select {
	case m.rejected <- status:
	default:
	}
}

// Run keeps the identity until ctx ends. It must be called once.
func (m *Manager) Run(ctx context.Context) {
	for ctx.Err() == nil {
		wait := m.tick(ctx)
		rejected := m.rejected
		if m.state != Active {
			rejected = nil // the doubt is being looked into, or nobody was trusted to begin with
		}
		select {
		case <-ctx.Done():
		case <-m.opt.Clock.After(wait):
		case status := <-rejected:
			m.doubt(status)
		case bundle := <-m.trusts:
			m.setTrust(ctx, bundle)
		case text := <-m.hints:
			m.setHint(text)
		}
	}
	m.retiring.Wait()
	if c := m.transport.Swap(nil); c != nil {
		c.Close()
	}
	m.credentials.refresh(nil, nil, nil)
}

// HTTPClient goes to the API server that the identity is for, as the identity; it verifies the server,
// does not follow redirects and has no overall timeout. The certificate may change between two
// requests. Before there is an identity requests fail.
func (m *Manager) HTTPClient() *http.Client { return m.transport.HTTPClient() }

// Server is the base URL for requests of HTTPClient. It stands for wherever the API server is.
func (m *Manager) Server() *url.URL { return m.transport.Server() }

// Readings is where every change appears. It holds the newest only.
func (m *Manager) Readings() <-chan Status { return m.readings }

// Rotated announces that requests now go out with another identity. Streams opened before it should be
// opened anew: they end after Times.Retire.
func (m *Manager) Rotated() <-chan struct{} { return m.rotated }

// record leaves an audit record. What others said is escaped and cut.
func (m *Manager) record(kind audit.Kind, message string, fields ...audit.Field) {
	r := audit.Record{Kind: kind, Message: printable.Text(message)}
	for _, f := range fields {
		r = r.With(f.Name, printable.Text(f.Value))
	}
	m.opt.Trail.Record(r)
}

// user is who we want to be.
func (m *Manager) user() string { return csr.User(m.opt.Node) }

// open opens a connection for a generation.
func (m *Manager) open(g *generation) (*apiserver.Conn, error) {
	c, err := g.config()
	if err != nil {
		return nil, err
	}
	return m.connect(c)
}

// connect opens a connection that knows what time it is at least. The signer's clock found the API server's
// certificate valid when it issued ours, so that this makes no server look expired.
func (m *Manager) connect(c apiserver.Config) (*apiserver.Conn, error) {
	c.Trusted = m.trustFor(c.Cluster().Server)
	c.Clock, c.Dial = m.opt.Clock.Now, m.opt.Dial
	for _, g := range []*generation{m.current, m.previous} {
		if g != nil && g.leaf.NotBefore.After(c.NotBefore) {
			c.NotBefore = g.leaf.NotBefore
		}
	}
	return c.Open()
}

// use makes a generation the one in use.
func (m *Manager) use(ctx context.Context, g *generation, c *apiserver.Conn) {
	m.current, m.state, m.credentials.consumed = g, Active, g.Credential == (plan.Digest{})
	m.attempt.purpose, m.attempt.newKey, m.health.refusedSince = bootstrapping, false, time.Time{}
	m.correctReceipt()
	m.health.renewAt, m.health.probeAt = m.opt.renewal(m.current), m.opt.Clock.Now().Add(m.opt.Times.CheckInterval)
	m.health.proven = false
	if m.expired() || !m.credentials.consumed || !m.health.renewalAllowed {
		// Perhaps only our clock is fast; what has served is consumed only once that is proven; and a
		// fault of RBAC is best known early.
		m.health.probeAt = m.opt.Clock.Now()
	}
	m.swap(ctx, c)
}

// swap puts another connection behind the transport. Users of the old one are told, and may finish.
func (m *Manager) swap(ctx context.Context, c *apiserver.Conn) {
	old := m.transport.Swap(c)
	select {
	case m.rotated <- struct{}{}:
	default:
	}
	if old == nil {
		return
	}
	old.CloseIdle()
	over := m.opt.Clock.After(m.opt.Times.Retire)
	m.retiring.Go(func() {
		select {
		case <-over:
		case <-ctx.Done():
		}
		old.Close()
	})
}
