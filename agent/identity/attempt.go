// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"fmt"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/apiserver"
	"github.com/node-cert-agent/node-cert-agent/agent/audit"
)

// attempt is the state of the request for the next certificate.
type attempt struct {
	purpose   purpose
	pending   *pending
	request   request     // of pending, once it was built
	requester *requester  // who asks; nil while renewing
	newKey    bool        // another key is made for the next request
	fresh     *generation // what is to be proven
	proveBy   time.Time   // until when a new certificate that the server does not know is given time
	rejected  bool        // the server did not know it when it was last asked

	failures, denials int // in a row
	polls             int // at a request that nobody has decided about
	notFound          int // how often a request of ours was gone
	// backoffUntil is set by a denial, which forbids another request until then.
	backoffUntil time.Time
}

// purpose is why a certificate is asked for, which decides who asks where.
type purpose int

const (
	bootstrapping purpose = iota // a credential asks, because there is no identity or it is lost
	renewing                     // the identity asks for its successor
	migrating                    // the identity works, and a credential asks at another cluster
)

// manyFailures is after how many failures in a row another credential is tried, which may lead to
// another server.
const manyFailures = 3

// conn is the connection that the current request uses: with our identity, or with a bootstrap credential.
func (m *Manager) conn() *apiserver.Conn {
	if m.attempt.purpose == renewing {
		return m.transport.Conn()
	}
	return m.attempt.requester.conn
}

// requesterName names the requester for a record.
func (m *Manager) requesterName() string {
	if m.attempt.purpose == renewing {
		return "as ourselves"
	}
	return "with " + m.attempt.requester.Name
}

func (m *Manager) fields() []audit.Field {
	f := []audit.Field{{Name: audit.Request, Value: m.attempt.request.name}}
	if m.attempt.purpose != renewing && m.attempt.requester != nil {
		f = append(f, audit.Field{Name: audit.Credential, Value: m.attempt.requester.Name})
	}
	return f
}

// pause is the wait after a failure, longer each time.
func (m *Manager) pause() time.Duration {
	m.attempt.failures++
	return backoff(m.opt.Times.RetryMin, m.opt.Times.RetryMax, m.attempt.failures-1, m.opt.Rand())
}

// deny starts the backoff after a denial. The key stays until it is over, so that a restarted agent finds the same
// denied request and does not make another at once.
func (m *Manager) deny(why string) transition {
	wait := backoff(m.opt.Times.DeniedMin, m.opt.Times.DeniedMax, m.attempt.denials, m.opt.Rand())
	m.attempt.denials++
	m.attempt.backoffUntil = m.opt.Clock.Now().Add(wait)
	m.record(audit.RequestDenied, "the request for a certificate came to nothing",
		append(m.fields(), audit.Field{Name: audit.Reason, Value: why})...)
	why = fmt.Sprintf("%s; asking again at %s", why, m.attempt.backoffUntil.UTC().Format(time.RFC3339))
	return transition{Requesting, why, min(wait, m.opt.Times.PollInterval)}
}

// requestFailed answers a request about our request that did not succeed; in is where we are.
func (m *Manager) requestFailed(ctx context.Context, in State, a answer) transition {
	switch a.verdict() {
	case unknown:
		return m.requesterRejected(a.reason)
	case forbidden:
		// A server that has just started forbids everything until it has read its rules, and where
		// there are anonymous users a token that has ended is one of them.
		who := m.api.whoami(ctx, m.conn())
		if who.verdict() == unknown {
			return m.requesterRejected(who.reason)
		}
		if who.verdict() == accepted {
			a.reason = fmt.Sprintf("known as %.128q and not allowed to ask for a certificate, a fault of RBAC: %s",
				who.user, a.reason)
		}
	}
	if m.attempt.purpose == renewing && (a.untrusted || m.attempt.failures >= manyFailures) {
		m.migration.preferredUntil = m.opt.Clock.Now().Add(m.opt.Times.Refused)
	}
	if a.untrusted && len(m.pins) > 0 {
		if m.attempt.purpose == renewing {
			m.health.probeAt = m.opt.Clock.Now()
			return transition{Active, a.reason, m.opt.Times.RetryMax}
		}
		err := m.rediscoverFor(ctx)
		if err == nil {
			return transition{in, a.reason, 0}
		}
		a.reason += "; " + err.Error()
	}
	wait := m.pause() + a.after // agents that got the same Retry-After are spread
	if m.attempt.purpose == migrating && m.attempt.requester.announced && in == Requesting {
		m.leaveAlone(m.attempt.requester, m.opt.Times.Refused, a.reason)
		m.migration.note = "the announced cluster does not let us ask: " + a.reason
		return transition{Requesting, a.reason, 0} // and back to where the identity works
	}
	if m.attempt.purpose == migrating && m.attempt.failures >= manyFailures && m.tryOtherTarget(a.reason) {
		return transition{Requesting, a.reason, 0}
	}
	if m.attempt.purpose == bootstrapping && (in == Requesting || m.attempt.failures >= manyFailures) {
		m.credentials.skip(m.attempt.requester)
		in = Requesting
	}
	return transition{in, a.reason, wait}
}

// tryOtherTarget switches to another file that leads to another cluster, if there is one. The key and its request stay.
func (m *Manager) tryOtherTarget(why string) bool {
	before := *m.attempt.requester
	m.leaveAlone(m.attempt.requester, m.opt.Times.Refused, why)
	if c := m.migrationTarget(); c == nil || c.announced {
		*m.attempt.requester = before
		return false
	}
	m.attempt.failures = 0
	return true
}

// leaveAlone does not use a credential for that long.
func (m *Manager) leaveAlone(c *requester, d time.Duration, why string) {
	c.refused, c.why = m.opt.Clock.Now().Add(d), why
}

// requesterRejected handles a 401: the credential is not used for a time, or the identity becomes suspect.
func (m *Manager) requesterRejected(why string) transition {
	if m.attempt.purpose == renewing {
		m.health.refusedSince = m.opt.Clock.Now()
		return transition{Suspect, why, 0}
	}
	if m.attempt.requester.why != why {
		m.record(audit.CredentialRefused, "the API server does not know a bootstrap credential",
			audit.Field{Name: audit.Credential, Value: m.attempt.requester.Name}, audit.Field{Name: audit.Reason, Value: why})
	}
	m.leaveAlone(m.attempt.requester, m.opt.Times.Refused, why)
	return transition{Requesting, why, 0}
}
