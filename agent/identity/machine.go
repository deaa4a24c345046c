// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
)

// State is a state of the identity. Its text is a word or two, for status and records.
type State string

// The states. Requesting, Pending and Proving are the three parts of getting a certificate; while one that still works
// is being replaced, they show as Renewing, which the machine itself is never in.
const (
	NoCredential State = "no credential"
	Requesting   State = "requesting"
	Pending      State = "pending"
	Proving      State = "proving"
	Active       State = "active"
	Renewing     State = "renewing"
	Suspect      State = "suspect"

	// starting is before what an earlier run left was read. It shows as NoCredential.
	starting State = "starting"
)

// machine says for each state what is done in it, and which states may be next. Each is a file of that name. The tests
// of this package fail where a tick leads elsewhere.
var machine = map[State]struct {
	act  func(*Manager, context.Context) transition
	next []State
}{
	starting:     {(*Manager).starting, []State{starting, NoCredential, Active}},
	NoCredential: {(*Manager).noCredential, []State{NoCredential, Requesting, Active}},
	Requesting:   {(*Manager).requesting, []State{Requesting, NoCredential, Pending, Active, Suspect}},
	Pending:      {(*Manager).awaitApproval, []State{Pending, Requesting, Proving, Active, Suspect}},
	Proving:      {(*Manager).proving, []State{Proving, Requesting, Active, Suspect}},
	Active:       {(*Manager).active, []State{Active, Requesting, Suspect}},
	Suspect:      {(*Manager).suspect, []State{Suspect, NoCredential, Requesting, Active}},
}

// transition is the outcome of one tick: the state that follows, the fact behind it, and when to go on.
type transition struct {
	to     State
	reason string
	wait   time.Duration
}

// tick does what the present state asks for and returns how long to wait before the next tick.
func (m *Manager) tick(ctx context.Context) time.Duration {
	if m.state != starting {
		m.pollCredentials(ctx)
		m.giveWay(ctx)
	}
	return m.transitionTo(machine[m.state].act(m, ctx))
}

// giveWay decides between a renewal that is due and a migration. What works comes first, and the migration begins again
// after it. But a renewal that fails may have no chance where we are, and what leads elsewhere is there to end
// that: it is preferred for a while, and then the renewal is tried again.
func (m *Manager) giveWay(ctx context.Context) {
	now := m.opt.Clock.Now()
	preferred := now.Before(m.migration.preferredUntil)
	switch a := &m.attempt; {
	case a.purpose == migrating && !preferred && !now.Before(m.health.renewAt):
		if a.rejected || !a.backoffUntil.IsZero() { // to ask for the same once more would lead to the same answer
			a.newKey = true
			_ = m.forget() // what cannot be dropped serves for the renewal
		}
		a.purpose, m.state, a.backoffUntil = bootstrapping, Active, time.Time{}
	case a.purpose == renewing && preferred && asking(m.state) && m.mayMigrate(ctx):
		a.purpose, m.state, a.backoffUntil = migrating, Requesting, time.Time{}
	}
}

// transitionTo makes the transition and publishes what can be seen of it.
func (m *Manager) transitionTo(t transition) time.Duration {
	if t.to != m.state && t.to == Suspect {
		m.record(audit.IdentitySuspect, "the API server refuses this node's identity",
			audit.Field{Name: audit.Reason, Value: t.reason})
	}
	if t.to != m.state && (!asking(t.to) || !asking(m.state)) {
		m.attempt.failures = 0
	}
	m.state, m.reason = t.to, t.reason
	m.publish()
	return max(t.wait, 0)
}

// asking tells the two states between which a request goes to and fro while the server does not answer as it
// should. What fails there fails in a row, until an answer is accepted.
func asking(s State) bool { return s == Requesting || s == Pending }

// Status is the present state of the identity.
type Status struct {
	State State
	// Reason is the fact behind State, in one line; it quotes the server and has to be escaped.
	Reason string
	// Usable is set while there is an identity, doubted or not: requests go through.
	Usable bool
	// Certificate is what is in use: its serial number in hexadecimal, its end, and when it will be
	// renewed. Serial is empty without one.
	Serial string
	// PublicKey is the SHA-256 of its SubjectPublicKeyInfo in hexadecimal.
	PublicKey      string
	Issued         time.Time
	Expires, Renew time.Time
}

func (m *Manager) publish() {
	s := Status{State: m.state, Reason: m.reason, Usable: m.current != nil}
	switch {
	case m.state == starting:
		s.State = NoCredential
	case m.attempt.purpose != bootstrapping && m.state != Active && m.state != Suspect:
		s.State = Renewing
	}
	if m.current != nil {
		leaf := m.current.leaf
		key := sha256.Sum256(leaf.RawSubjectPublicKeyInfo)
		s.Serial, s.PublicKey = leaf.SerialNumber.Text(16), hex.EncodeToString(key[:])
		s.Issued, s.Expires, s.Renew = leaf.NotBefore, leaf.NotAfter, m.health.renewAt
	}
	replace(m.readings, s)
}

// replace puts v where the newest is to be found, over what is there.
func replace[T any](newest chan T, v T) {
	select {
	case <-newest:
	default:
	}
	newest <- v // there is room: nobody else sends
}
