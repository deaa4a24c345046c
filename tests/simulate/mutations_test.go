// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"flag"
	"testing"
	"testing/synctest"
	"time"

	"github.com/node-cert-agent/node-cert-agent/tests/simulate/mutations"
)

var mutate = flag.Bool("mutations", false, "build the agent with each mutation, and have the walks find it")

// seeded is what the walks have to find. Each is a promise that is broken somewhere; together they say what the
// simulator is worth. A mutation whose text is gone is to be replaced by one like it.
var seeded = []mutations.Mutation{
	{"a unit counts as started after any change", "agent/unitplan/decide.go",
		"return !s.Since.IsZero() && s.Since.After(in.changed().Add(clockSlack))", "return !s.Since.IsZero()"},
	{"another run of a unit counts as the one that loaded", "agent/unitplan/decide.go",
		"return l.Boot == s.Boot && l.Invocation == s.Invocation }",
		"return l.Boot == s.Boot || l.Invocation == s.Invocation }"},
	{"a hold lasts half as long", "agent/plan/hold.go",
		"left := limit - h.age()", "left := limit/2 - h.age()"},
	{"the hold of a file is not ended by its return", "agent/plan/hold.go",
		"named[HoldKey{Path: path}] = true\n\t\tfor", "for"},
	{"the trust source shrinks once it was asked whether it may", "agent/plan/hold.go",
		`if asked && answer == "" {`, "if asked {"},
	{"the last usable certificate goes like any other", "agent/plan/hold.go",
		"if !slices.ContainsFunc(left, func(x pki.Cert) bool { return !c.expired(x) }) {\n\t\treturn",
		"if len(left) == 0 {\n\t\treturn"},
	{"what is revoked goes in a pause, too", "agent/plan/hold.go",
		`return c.in.Desired.Verified && c.in.Desired.Paused == "" && slices`, "return c.in.Desired.Verified && slices"},
	{"what is only remembered takes trust away", "agent/plan/hold.go",
		"case !c.in.Desired.Verified || e.Carried:", "case false:"},
	{"a file goes that somebody else changed", "agent/plan/plan.go",
		"case !slices.Contains(cl.Digests, f.Digest):", "case false:"},
	{"a file goes whose list says nothing", "agent/plan/plan.go",
		"case !c.in.Desired.Listed[k.Field]:\n\t\tc.keep", "case false:\n\t\tc.keep"},
	{"a file goes that is refused", "agent/plan/plan.go",
		"case c.refusedAt(path):", "case false:"},
	{"many files go at once", "agent/plan/hold.go",
		"many := missing > present", "many := missing > 2*present+9"},
	{"what is written is not claimed", "agent/plan/plan.go",
		"c.claim(spec, w)", "_ = spec"},
	{"what is only remembered takes trust away beside a local override", "agent/plan/over.go",
		"e.Carried = e.Carried || !base.Verified", "_ = base.Verified"},
	{"a conflict is never calmed", "agent/files/conflict.go",
		"return len(c.repairs) >= conflictAfter", "return len(c.repairs) >= 100*conflictAfter"},
	{"a start is as near to the last as it likes", "agent/unitplan/act.go",
		"if s.StartBurst <= 0 ||", "if s.StartBurst >= 0 ||"},
	{"an action is not unknown while it is under way", "agent/unitactions/dispatch.go",
		"Tried: a.Clock.Now().UTC()}.Outdated(now))",
		"Tried: a.Clock.Now().UTC(), Boot: now.Boot, Invocation: now.Invocation})"},
	{"the breaker does not open", "agent/unitactions/actions.go",
		"maxFailures = 5", "maxFailures = 5000"},
	{"an action is sent while systemd has a job for the unit", "agent/unitactions/wait.go",
		"if now.Busy {\n\t\treturn later", "if false {\n\t\treturn later"},
	{"who loads what a oneshot makes does not wait for it", "agent/unitactions/wait.go",
		`if oneshot := a.pendingPrerequisite(u.Name); oneshot != "" {` + "\n\t\treturn later",
		`if oneshot := a.pendingPrerequisite(u.Name); oneshot == "no"+"body" {` + "\n\t\treturn later"},
	{"a pause does not stop actions", "agent/unitactions/wait.go",
		`if p := d.Paused; p != "" {`, `if p := d.Paused; p == "never" {`},
	{"a unit is made to load a file that cannot be read", "agent/unitplan/decide.go",
		"case f.Kind == plan.Unreadable || f.Kind == plan.Irregular &&",
		"case f.Kind == plan.Irregular && f.Kind == plan.Unreadable &&"},
	{"a unit is made to load a file before it is repaired", "agent/unitplan/decide.go",
		"case o[e.Key].Digest != e.OnDisk():", "case false:"},
	{"a unit is acted on whose file's commit failed", "agent/files/observe.go",
		"f.unsynced[w.Key] = true", "_ = w.Key"},
	{"what goes is not forgotten before", "agent/files/apply.go",
		"_ = f.keep(d, p.Entries)\n\t}\n", "_ = f\n\t}\n"},
	{"a retry does not wait longer each time", "agent/schedule.go",
		"s.backoff.Pause(s.retries)", "s.backoff.Pause(0)"},
	{"a reconcile that failed is followed by the next at once", "agent/schedule.go",
		"sooner(t.At, next) && (s.retry.IsZero() || t.At.After(s.began))", "t.At.Before(next)"},
	{"the end of a hold waits for the next look", "agent/files/files.go",
		`{What: "the end of a hold", At: f.release}`, `{What: "the end of a hold", At: time.Time{}}`},
	{"an action waits for the next look", "agent/unitactions/actions.go",
		`clock.Timer{What: "the action on " + u.Name, At: s.again}`,
		`clock.Timer{What: "the action on " + u.Name, At: time.Time{}}`},
	{"what an earlier boot was up before a hold counts for it", "agent/plan/hold.go",
		"Since: m.Uptime - (h.Seen - h.Since)", "Since: m.Uptime - h.Seen"},
	{"memory of claims is lost at each start", "agent/state/state.go",
		"st.Owned[o.Path] = o.Claim", "_ = o"},
	{"a hold is over after each start", "agent/state/state.go",
		"pki.Fingerprint(h.Cert)}] = h.Hold", "pki.Fingerprint(h.Cert)}] = plan.Hold{Boot: h.Boot, Since: h.Since - 1<<43, " +
			"Seen: h.Seen}"},
}

// TestMutations looks whether each mutation still has its place. With -mutations it builds the agent with each, beside
// the tree, and walks until a promise is broken.
func TestMutations(t *testing.T) {
	x := mutations.Table{Root: "../..", Mutations: seeded, Walks: 3000, Time: 20 * time.Minute, Right: right}
	if x.Look(t); *mutate {
		x.Find(t)
	}
}

// right tells whether a walk goes right.
func right(t *testing.T, seed uint64) (ok bool) {
	synctest.Test(t, func(*testing.T) { ok = run(Draw(seed, *length), false).Violation == nil })
	return ok
}
