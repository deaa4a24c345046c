// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"fmt"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/apiserver"
	"github.com/node-cert-agent/node-cert-agent/agent/audit"
)

// attempt is how far the next certificate has come.
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
	looks             int // at a request that nobody has decided about
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

// conn is how the request in hand is spoken of: as ourselves, or with a bootstrap credential.
func (k *Keeper) conn() *apiserver.Conn {
	if k.attempt.purpose == renewing {
		return k.transport.Conn()
	}
	return k.attempt.requester.conn
}

// requesterName names the asker for a record.
func (k *Keeper) requesterName() string {
	if k.attempt.purpose == renewing {
		return "as ourselves"
	}
	return "with " + k.attempt.requester.Name
}

func (k *Keeper) fields() []audit.Field {
	f := []audit.Field{{Name: audit.Request, Value: k.attempt.request.name}}
	if k.attempt.purpose != renewing && k.attempt.requester != nil {
		f = append(f, audit.Field{Name: audit.Credential, Value: k.attempt.requester.Name})
	}
	return f
}

// pause is the wait after a failure, longer each time.
func (k *Keeper) pause() time.Duration {
	k.attempt.failures++
	return backoff(k.opt.Times.RetryMin, k.opt.Times.RetryMax, k.attempt.failures-1, k.opt.Rand())
}

// deny makes the pause that a denial asks for. The key stays until it is over, so that a restart
// meets the same denied request and does not ask at once for another.
func (k *Keeper) deny(why string) transition {
	wait := backoff(k.opt.Times.DeniedMin, k.opt.Times.DeniedMax, k.attempt.denials, k.opt.Rand())
	k.attempt.denials++
	k.attempt.backoffUntil = k.opt.Clock.Now().Add(wait)
	k.tell(audit.RequestDenied, "the request for a certificate came to nothing",
		append(k.fields(), audit.Field{Name: audit.Reason, Value: why})...)
	why = fmt.Sprintf("%s; asking again at %s", why, k.attempt.backoffUntil.UTC().Format(time.RFC3339))
	return transition{Requesting, why, min(wait, k.opt.Times.PollInterval)}
}

// requestFailed answers a request about our request that did not succeed; in is where we are.
func (k *Keeper) requestFailed(ctx context.Context, in State, a answer) transition {
	switch a.verdict() {
	case unknown:
		return k.requesterRejected(a.reason)
	case forbidden:
		// A server that has just started forbids everything until it has read its rules, and where
		// there are anonymous users a token that has ended is one of them.
		who := k.api.whoami(ctx, k.conn())
		if who.verdict() == unknown {
			return k.requesterRejected(who.reason)
		}
		if who.verdict() == accepted {
			a.reason = fmt.Sprintf("known as %.128q and not allowed to ask for a certificate, a fault of RBAC: %s",
				who.user, a.reason)
		}
	}
	if k.attempt.purpose == renewing && (a.untrusted || k.attempt.failures >= manyFailures) {
		k.migration.preferredUntil = k.opt.Clock.Now().Add(k.opt.Times.Refused)
	}
	if a.untrusted && len(k.pins) > 0 {
		if k.attempt.purpose == renewing {
			k.health.probeAt = k.opt.Clock.Now()
			return transition{Active, a.reason, k.opt.Times.RetryMax}
		}
		err := k.rediscoverFor(ctx)
		if err == nil {
			return transition{in, a.reason, 0}
		}
		a.reason += "; " + err.Error()
	}
	wait := k.pause() + a.after // all whom the server told the same come back apart
	if k.attempt.purpose == migrating && k.attempt.requester.announced && in == Requesting {
		k.leaveAlone(k.attempt.requester, k.opt.Times.Refused, a.reason)
		k.migration.note = "the announced cluster does not let us ask: " + a.reason
		return transition{Requesting, a.reason, 0} // and back to where the identity works
	}
	if k.attempt.purpose == migrating && k.attempt.failures >= manyFailures && k.tryOtherTarget(a.reason) {
		return transition{Requesting, a.reason, 0}
	}
	if k.attempt.purpose == bootstrapping && (in == Requesting || k.attempt.failures >= manyFailures) {
		k.credentials.skip(k.attempt.requester)
		in = Requesting
	}
	return transition{in, a.reason, wait}
}

// tryOtherTarget has another file tried that leads elsewhere, if there is one. The key and its request stay.
func (k *Keeper) tryOtherTarget(why string) bool {
	before := *k.attempt.requester
	k.leaveAlone(k.attempt.requester, k.opt.Times.Refused, why)
	if c := k.migrationTarget(); c == nil || c.announced {
		*k.attempt.requester = before
		return false
	}
	k.attempt.failures = 0
	return true
}

// leaveAlone has somebody else tried for that long.
func (k *Keeper) leaveAlone(c *requester, d time.Duration, why string) {
	c.refused, c.why = k.opt.Clock.Now().Add(d), why
}

// requesterRejected leaves alone, for a time, whom the server does not know.
func (k *Keeper) requesterRejected(why string) transition {
	if k.attempt.purpose == renewing {
		k.health.refusedSince = k.opt.Clock.Now()
		return transition{Suspect, why, 0}
	}
	if k.attempt.requester.why != why {
		k.tell(audit.CredentialRefused, "the API server does not know a bootstrap credential",
			audit.Field{Name: audit.Credential, Value: k.attempt.requester.Name}, audit.Field{Name: audit.Reason, Value: why})
	}
	k.leaveAlone(k.attempt.requester, k.opt.Times.Refused, why)
	return transition{Requesting, why, 0}
}
