// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
)

// manyFailures is after how many failures in a row another credential is tried, which may lead to
// another server.
const manyFailures = 3

// link is how the request in hand is spoken of: as ourselves, or with a bootstrap credential.
func (k *Keeper) link() *link {
	if k.renewing {
		return k.door.link.Load()
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

func (k *Keeper) certificate(g *generation) []audit.Field {
	return append(k.fields(), audit.Field{Name: audit.Serial, Value: g.leaf.SerialNumber.Text(16)},
		audit.Field{Name: audit.Expires, Value: g.leaf.NotAfter.UTC().Format(time.RFC3339)})
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
	wait := max(k.pause(), a.after)
	if !k.renewing && !k.moving && (in == Requesting || k.failures >= manyFailures) {
		k.ladder.pass(k.asker)
		in = Requesting
	}
	return move{in, a.reason, wait}
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

// active lives with the identity until something is due.
func (k *Keeper) active(ctx context.Context) move {
	now, reason := k.opt.Clock.Now(), k.reason
	if !now.Before(k.probe) {
		m, h := k.prober(ctx)
		if h == refuted {
			return m
		}
		reason = k.remarks()
		if h == holds && k.complaint == http.StatusForbidden {
			reason = "known as " + k.user() + " and not allowed to do what was asked: a fault of RBAC"
			k.probe = now.Add(2 * k.opt.Times.RetryMax) // who complained tries again before that
		}
		k.complaint = 0
	}
	if k.pending != nil || !now.Before(k.renew) {
		k.renewing = true
		return move{Requesting, "", 0}
	}
	if k.elsewhere() != nil {
		k.moving = true
		return move{Requesting, "the cluster has moved", 0}
	}
	return move{Active, reason, k.untilNext()}
}

// untilNext is when an identity that nobody complains about needs attention.
func (k *Keeper) untilNext() time.Duration {
	next := k.looked.Add(k.every())
	for _, t := range []time.Time{k.renew, k.probe} {
		if t.Before(next) {
			next = t
		}
	}
	return next.Sub(k.opt.Clock.Now())
}

// health is what a probe found.
type health int

const (
	unclear health = iota // no answer, or one that says nothing about us
	holds
	refuted
)

// prober asks on a fresh connection whether the identity holds, and says where that leads.
func (k *Keeper) prober(ctx context.Context) (move, health) {
	now := k.opt.Clock.Now()
	k.probe = now.Add(k.opt.Times.Probe)
	l, err := k.open(k.current)
	if err != nil {
		return move{k.state, err.Error(), k.opt.Times.RetryMax}, unclear
	}
	defer l.close()
	a := k.api.whoami(ctx, l)
	switch v := a.verdict(); {
	case v == accepted && a.user == k.user():
		k.doubt, k.proven = time.Time{}, true
		k.foresee(ctx, l)
		return move{Active, k.remarks(), k.second()}, holds
	case v == accepted:
		a.reason = fmt.Sprintf("the server takes our certificate for %.128q", a.user)
	case v != unknown && v != forbidden:
		return move{k.state, a.reason, k.opt.Times.RetryMax}, unclear
	}
	if k.doubt.IsZero() {
		k.doubt = now
	}
	return move{Suspect, a.reason, k.second()}, refuted
}

// foresee asks, weeks before it matters, whether a renewal would be allowed.
func (k *Keeper) foresee(ctx context.Context, l *link) {
	if k.renewable {
		return
	}
	a := k.api.mayAsk(ctx, l)
	if a.verdict() != accepted {
		return
	}
	before := k.warning
	if k.renewable, k.warning = a.allowed, ""; !a.allowed {
		k.warning = "a renewal would fail: " + k.user() + " is not allowed to create certificatesigningrequests, a fault of RBAC"
	}
	if k.warning != "" && before == "" {
		k.tell(audit.RenewalForbidden, k.warning)
	}
}

// remarks is what there is to say of an identity that works.
func (k *Keeper) remarks() string {
	if k.warning != "" {
		return k.warning
	}
	return k.leftover
}

// second is the wait for a second opinion.
func (k *Keeper) second() time.Duration {
	if k.expired() {
		return k.opt.Times.RetryMin
	}
	return min(max(k.opt.Times.SuspectAfter/4, k.opt.Times.RetryMin), k.opt.Times.RetryMax)
}

// expired is what our own clock says of the certificate in use.
func (k *Keeper) expired() bool { return k.opt.Clock.Now().After(k.current.leaf.NotAfter) }

// suspect decides whether the identity is lost. It stays in use: some API server may still know it.
func (k *Keeper) suspect(ctx context.Context) move {
	since := k.doubt
	m, h := k.prober(ctx)
	if h == refuted && doubted(since, k.opt.Clock.Now(), k.current.leaf.NotAfter, k.opt.Times.SuspectAfter) {
		k.renewing, k.looked = false, time.Time{}
		return move{NoCredential, m.reason, 0}
	}
	return m
}
