// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"flag"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/tests/simulate/mutations"
)

var mutate = flag.Bool("mutations", false, "build the agent with each mutation, and have the walks find it")

// seeded is what the walks have to find. A mutation whose text is gone is to be replaced by one like it.
var seeded = []mutations.Mutation{
	{"a key is not made durable before it is used", "agent/identity/requesting.go",
		"if err := m.store.keepPending(p); err != nil {", "if err := error(nil); err != nil {"},
	{"what was denied is asked for with the same key for ever", "agent/identity/requesting.go",
		"if !m.attempt.backoffUntil.IsZero() {", "if false {"},
	{"a denial costs no pause", "agent/identity/attempt.go",
		"m.attempt.backoffUntil = m.opt.Clock.Now().Add(wait)", "m.attempt.backoffUntil = m.opt.Clock.Now()"},
	{"a request that is gone is waited for", "agent/identity/pending.go",
		`return transition{Requesting, "the request is gone",`, `return transition{Pending, "the request is gone",`},
	{"a certificate is put to use without proof", "agent/identity/proving.go",
		"if v == accepted && a.user == m.user() {", "if true {"},
	{"what is issued is not looked at", "agent/identity/pending.go",
		"\t\t\terr = g.check(m.opt.Node)", "\t\t\t_ = g.check(m.opt.Node)"},
	{"the file that served is forgotten at a renewal", "agent/identity/pending.go",
		"g.Credential = m.current.Credential\n\t\t}\n\t} else", "g.Credential = [32]byte{}\n\t\t}\n\t} else"},
	{"a credential is consumed before the proof", "agent/identity/credentials.go",
		"if m.health.proven {", "if true {"},
	{"a file that could not be consumed counts as consumed", "agent/identity/credentials.go",
		"m.credentials.cleanupError = \"\"\n\tif err != nil {", "m.credentials.cleanupError = \"\"\n\tif false {"},
	{"a renewal comes after the end", "agent/identity/decide.go",
		"(0.7 + 0.2*place)", "(1.02 + 0.2*place)"},
	{"a renewal comes at once", "agent/identity/decide.go",
		"return received.Add(max(after, shortest, life/10))", "return received.Add(max(after/50, shortest))"},
	{"failures cost no pause", "agent/identity/decide.go",
		"return d - time.Duration(random*float64(d)/4)", "return 0"},
	{"one refusal is a loss", "agent/identity/decide.go",
		"now.Sub(since) >= after", "!now.Before(since)"},
	{"an earlier refusal counts although the server knew us since", "agent/identity/health.go",
		"m.health.refusedSince, m.health.proven = time.Time{}, true", "m.health.proven = true"},
	{"a lost identity is not used any more", "agent/identity/suspect.go",
		"m.attempt.purpose, m.credentials.polled = bootstrapping, time.Time{}",
		"m.attempt.purpose, m.credentials.polled = bootstrapping, time.Time{}\n\t\tk.current = nil"},
	{"what was received in the future stays so", "agent/identity/active.go",
		"if !m.current.Received.After(now) {", "if true {"},
	{"a doubt that nobody settles keeps a file from being used", "agent/identity/suspect.go",
		"if h == unclear || h == unverified {", "if false {"},
	{"failures begin anew with each state", "agent/identity/machine.go",
		"if t.to != m.state && (!asking(t.to) || !asking(m.state)) {", "if t.to != m.state {"},
	{"a renewal never gives way", "agent/identity/machine.go",
		"case a.purpose == renewing && preferred && asking(m.state) && m.mayMigrate(ctx):", "case false:"},
	{"servers are not verified", "agent/apiserver/config.go",
		"\tclock, notBefore := c.Clock,", "\tout.InsecureSkipVerify = true\n\tclock, notBefore := c.Clock,"},
	{"a clock that is slow makes servers look as if they had not begun", "agent/apiserver/config.go",
		"return later(clock(), notBefore)", "return later(clock(), notBefore.AddDate(-99, 0, 0))"},
	{"what one cluster publishes counts for another", "agent/identity/trust.go",
		"c != nil && c.Server == server", "c != nil || server == \"\""},
	{"what is published is believed before it verifies the server", "agent/identity/trust.go",
		"a.untrusted {", "a.untrusted && len(before) == 1 {"},
	{"a CA without a pinned key is trusted", "agent/apiserver/pins.go",
		"case !p.match(c) || seen", "case seen"},
	{"the identity before is not kept", "agent/identity/store.go",
		"if before != nil {", "if before == nil && g == nil {"},
	{"the identity before is not used when the other is damaged", "agent/identity/starting.go",
		"current, m.previous = m.previous, nil", "m.previous = nil"},
	{"a hint is followed that the host does not follow", "agent/identity/migration.go",
		"if !m.opt.FollowHint || text", "if text"},
	{"two clusters that announce each other are visited in turn", "agent/identity/migration.go",
		"return m.previous != nil && to.Same(m.previous.Cluster) && recent", "return false && recent"},
	{"of several files the first is tried for ever", "agent/identity/credentials.go",
		"all.at = (i + 1) % len(all.list)", "all.at = i"},
	{"a token that is refused is tried again at once", "agent/identity/attempt.go",
		"c.refused, c.why = m.opt.Clock.Now().Add(d), why", "c.why = why"},
}

// TestMutations looks whether each mutation still has its place. With -mutations it builds the agent with each, beside
// the tree, and walks until a promise is broken.
func TestMutations(t *testing.T) {
	x := mutations.Table{Root: "../../..", Mutations: seeded, Walks: 500, Time: 20 * time.Minute,
		Right: func(t *testing.T, seed uint64) bool { return run(t, Draw(seed, *length), false).Violation == nil }}
	if x.Look(t); *mutate {
		x.Find(t)
	}
}
