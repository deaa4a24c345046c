// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"fmt"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/apiserver"
	"github.com/node-cert-agent/node-cert-agent/agent/audit"
)

// manyFailures is after how many failures in a row another credential is tried, which may lead to
// another server.
const manyFailures = 3

// link is how the request in hand is spoken of: as ourselves, or with a bootstrap credential.
func (k *Keeper) link() *apiserver.Conn {
	if k.renewing {
		return k.transport.Conn()
	}
	return k.asker.link
}

// by names the asker for a record.
func (k *Keeper) by() string {
	if k.renewing {
		return "as ourselves"
	}
	return "with " + k.asker.name
}

func (k *Keeper) fields() []audit.Field {
	f := []audit.Field{{Name: audit.Request, Value: k.request.name}}
	if !k.renewing && k.asker != nil {
		f = append(f, audit.Field{Name: audit.Credential, Value: k.asker.name})
	}
	return f
}

// pause is the wait after a failure, longer each time.
func (k *Keeper) pause() time.Duration {
	k.failures++
	return backoff(k.opt.Times.RetryMin, k.opt.Times.RetryMax, k.failures-1, k.opt.Rand())
}

// trouble answers a request about our request that did not succeed; in is where we are.
func (k *Keeper) trouble(ctx context.Context, in State, a answer) move {
	switch a.verdict() {
	case unknown:
		return k.rejected(a.reason)
	case forbidden:
		// A server that has just started forbids everything until it has read its rules, and where
		// there are anonymous users a token that has ended is one of them.
		who := k.api.whoami(ctx, k.link())
		if who.verdict() == unknown {
			return k.rejected(who.reason)
		}
		if who.verdict() == accepted {
			a.reason = fmt.Sprintf("known as %.128q and not allowed to ask for a certificate, a fault of RBAC: %s", who.user, a.reason)
		}
	}
	if k.renewing && (a.untrusted || k.failures >= manyFailures) {
		k.barred = k.opt.Clock.Now().Add(k.opt.Times.Refused)
	}
	if a.untrusted && len(k.pins) > 0 {
		if k.renewing {
			k.probe = k.opt.Clock.Now()
			return move{Active, a.reason, k.opt.Times.RetryMax}
		}
		err := k.relearn(ctx)
		if err == nil {
			return move{in, a.reason, 0}
		}
		a.reason += "; " + err.Error()
	}
	wait := k.pause() + a.after // all whom the server told the same come back apart
	if k.moving && k.asker.announced && in == Requesting {
		k.asker.refused, k.asker.why = k.opt.Clock.Now().Add(k.opt.Times.Refused), a.reason
		k.remark = "the announced cluster does not let us ask: " + a.reason
		return move{Requesting, a.reason, 0} // and back to where the identity works
	}
	if k.moving && k.failures >= manyFailures && k.leave(a.reason) {
		return move{Requesting, a.reason, 0}
	}
	if !k.renewing && !k.moving && (in == Requesting || k.failures >= manyFailures) {
		k.ladder.pass(k.asker)
		in = Requesting
	}
	return move{in, a.reason, wait}
}

// leave has another file tried that leads elsewhere, if there is one. The key and its request stay.
func (k *Keeper) leave(why string) bool {
	before := k.asker.refused
	k.asker.refused = k.opt.Clock.Now().Add(k.opt.Times.Refused)
	if c := k.elsewhere(); c == nil || c.announced {
		k.asker.refused = before
		return false
	}
	k.asker.why, k.failures = why, 0
	return true
}

// rejected leaves alone, for a time, whom the server does not know.
func (k *Keeper) rejected(why string) move {
	if k.renewing {
		k.doubt = k.opt.Clock.Now()
		return move{Suspect, why, 0}
	}
	if k.asker.why != why {
		k.tell(audit.CredentialRefused, "the API server does not know a bootstrap credential", audit.Field{Name: audit.Credential, Value: k.asker.name},
			audit.Field{Name: audit.Reason, Value: why})
	}
	k.asker.refused, k.asker.why = k.opt.Clock.Now().Add(k.opt.Times.Refused), why
	return move{Requesting, why, 0}
}
