// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

var mutate = flag.Bool("mutations", false, "build the agent with each mutation, and have the walks find it")

// mutation is a mistake that somebody could make in the code that decides: one text in place of another.
type mutation struct {
	what, file, old, new string
}

// mutations are what the walks have to find. Each is a promise that is broken somewhere; together they say what the
// simulator is worth. A mutation whose text is gone is to be replaced by one like it.
var mutations = []mutation{
	{"a unit counts as started after any change", "agent/plan/owed.go",
		"return !s.Since.IsZero() && s.Since.After(in.changed().Add(clockSlack))", "return !s.Since.IsZero()"},
	{"another run of a unit counts as the one that loaded", "agent/plan/owed.go",
		"return l.Boot == s.Boot && l.Invocation == s.Invocation }", "return l.Boot == s.Boot || l.Invocation == s.Invocation }"},
	{"a hold lasts half as long", "agent/plan/retain.go",
		"left := limit - h.age()", "left := limit/2 - h.age()"},
	{"a hold is not ended by what comes back", "agent/plan/retain.go",
		"delete(c.holds, h)", "_ = h"},
	{"the trust source shrinks once it was asked whether it may", "agent/plan/retain.go",
		`if asked && answer == "" {`, "if asked {"},
	{"the last usable certificate goes like any other", "agent/plan/retain.go",
		"if !slices.ContainsFunc(left, func(x pki.Cert) bool { return !c.expired(x) }) {\n\t\treturn", "if len(left) == 0 {\n\t\treturn"},
	{"what is revoked goes in a pause, too", "agent/plan/retain.go",
		`return c.in.Desired.Verified && c.in.Desired.Paused == "" && slices`, "return c.in.Desired.Verified && slices"},
	{"what is only remembered takes trust away", "agent/plan/retain.go",
		"case !c.in.Desired.Verified || e.Carried:", "case false:"},
	{"a file goes that somebody else changed", "agent/plan/plan.go",
		"case !slices.Contains(cl.Digests, f.Digest):", "case false:"},
	{"a file goes whose list says nothing", "agent/plan/plan.go",
		"case !c.in.Desired.Listed[k.Row]:\n\t\tc.keep", "case false:\n\t\tc.keep"},
	{"a file goes that is refused", "agent/plan/plan.go",
		"case c.refusedAt(path):", "case false:"},
	{"many files go at once", "agent/plan/retain.go",
		"many := missing > present", "many := missing > 2*present+9"},
	{"what is written is not claimed", "agent/plan/plan.go",
		"c.claim(row, w)", "_ = row"},
	{"an operator's word for some files speaks for a list that was not read", "agent/plan/over.go",
		"out.Listed[id] = out.Listed[id] || base.Verified", "out.Listed[id] = true"},
	{"a quarrel is never calmed", "agent/plan/conflict.go",
		"return len(q.Repairs) >= QuarrelAfter", "return len(q.Repairs) >= 100*QuarrelAfter"},
	{"a start is as near to the last as it likes", "agent/plan/act.go",
		"if s.StartBurst <= 0 ||", "if s.StartBurst >= 0 ||"},
	{"an action is not unknown while it is under way", "agent/dispatch.go",
		"Tried: l.Clock.Now().UTC()}.Outdated(now))", "Tried: l.Clock.Now().UTC(), Boot: now.Boot, Invocation: now.Invocation})"},
	{"the breaker does not open", "agent/dispatch.go",
		"maxFailures = 5", "maxFailures = 5000"},
	{"an action is sent while systemd has a job for the unit", "agent/settle.go",
		"if now.Busy {\n\t\treturn later", "if false {\n\t\treturn later"},
	{"who loads what a oneshot makes does not wait for it", "agent/settle.go",
		`if maker := l.makes(u.Name); maker != "" {` + "\n\t\treturn later", `if maker := l.makes(u.Name); maker == "no"+"body" {` + "\n\t\treturn later"},
	{"a pause does not stop actions", "agent/settle.go",
		`if p := l.desired.Paused; p != "" {`, `if p := l.desired.Paused; p == "never" {`},
	{"a unit is made to load a file that cannot be read", "agent/plan/owed.go",
		"if f.Kind == Unreadable || f.Kind == Irregular &&", "if f.Kind == Irregular && f.Kind == Unreadable &&"},
	{"a unit is made to load a file before it is repaired", "agent/plan/owed.go",
		"case o[e.Key].Digest != e.OnDisk():", "case false:"},
	{"a unit is acted on whose file's commit failed", "agent/apply.go",
		"l.unsynced[w.Key] = true", "_ = w.Key"},
	{"what goes is not forgotten before", "agent/apply.go",
		"_ = l.keep(p)\n\t}\n", "_ = l\n\t}\n"},
	{"a retry does not wait longer each time", "agent/pass.go",
		"backoff(l.Times, l.retries)", "backoff(l.Times, 0)"},
	{"a pass that failed is followed by the next at once", "agent/timers.go",
		"t.at.Before(next) && (l.retry.IsZero() || t.at.After(l.turned))", "t.at.Before(next)"},
	{"the end of a hold waits for the next look", "agent/timers.go",
		`{"the end of a hold", l.release}`, `{"the end of a hold", time.Time{}}`},
	{"an action waits for the next look", "agent/timers.go",
		`timer{"the action on " + u.Name, s.again}`, `timer{"the action on " + u.Name, time.Time{}}`},
	{"the uptime of another boot counts for a hold", "agent/plan/hold.go",
		"if h.Boot != m.Boot || m.Uptime < h.Seen {", "if m.Uptime < h.Seen {"},
	{"memory of claims is lost at each start", "agent/state/state.go",
		"st.Owned[o.Path] = o.Claim", "_ = o"},
	{"a hold is over after each start", "agent/state/state.go",
		"pki.Fingerprint(h.Cert)}] = h.Hold", "pki.Fingerprint(h.Cert)}] = plan.Hold{Boot: h.Boot, Since: h.Since - 1<<43, Seen: h.Seen}"},
}

// apply gives the file's text with the mutation in it.
func (m mutation) apply() (text []byte, wrong string) {
	text, err := os.ReadFile(filepath.Join("..", "..", m.file))
	if err != nil {
		return nil, err.Error()
	}
	if n := bytes.Count(text, []byte(m.old)); n != 1 {
		return nil, m.file + " has the text " + strconv.Itoa(n) + " times: " + m.old
	}
	return bytes.Replace(text, []byte(m.old), []byte(m.new), 1), ""
}

// enough is how many walks each mutation gets to be found in. Most take fewer than a hundred.
const enough = 3000

// TestMutations looks whether each mutation still has its place: one that changes nothing proves nothing. With
// -mutations it builds the agent with each, beside the tree, and walks until a promise is broken.
func TestMutations(t *testing.T) {
	for _, m := range mutations {
		if _, wrong := m.apply(); wrong != "" {
			t.Errorf("%s: %s", m.what, wrong)
		}
	}
	if !*mutate {
		return
	}
	missed := 0
	var mu sync.Mutex
	t.Run("all", func(t *testing.T) {
		for _, m := range mutations {
			t.Run(strings.ReplaceAll(m.what, " ", "-"), func(t *testing.T) {
				t.Parallel()
				if said, found := m.find(t); !found {
					mu.Lock()
					missed++
					mu.Unlock()
					t.Errorf("%s: %d walks did not find it:\n%s", m.what, enough, said)
				} else {
					t.Log(said)
				}
			})
		}
	})
	t.Logf("found %d of %d mutations", len(mutations)-missed, len(mutations))
}

// find builds and walks; said is the violation.
func (m mutation) find(t *testing.T) (said string, found bool) {
	text, wrong := m.apply()
	if wrong != "" {
		return wrong, false
	}
	dir := t.TempDir()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	mutated, overlay, program := filepath.Join(dir, "mutated.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "walks")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(root, m.file): mutated}})
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{mutated: text, overlay: replace} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", m.what, err, out)
	}
	out, err := exec.Command(program, "-test.run", "^TestWalks$", "-test.v", "-walks", strconv.Itoa(enough), "-until-found", "-show", "0").CombinedOutput()
	for line := range strings.SplitSeq(string(out), "\n") {
		if _, v, ok := strings.Cut(line, ": seed "); ok {
			digits, _, _ := strings.Cut(v, ":")
			seed, _ := strconv.ParseUint(digits, 10, 64)
			return "seed " + v, sound(t, seed)
		}
	}
	return string(out), err != nil && strings.Contains(string(out), "panic")
}

// sound tells whether a walk goes right without any mutation: else it proves nothing.
func sound(t *testing.T, seed uint64) (right bool) {
	synctest.Test(t, func(*testing.T) {
		if v := run(Draw(seed, *length), false).Violation; v != nil {
			t.Errorf("the walk goes wrong without the mutation: %s", v)
		} else {
			right = true
		}
	})
	return right
}
