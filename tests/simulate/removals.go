// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"slices"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/state"
)

// writing judges a new version of a file: what goes with it, and what comes.
func (m *model) writing(w *env, spec plan.FileSpec, p string, old, f *file) {
	m.checkConflicts(w, spec, p, old, f)
	if m.wrote[p] == nil {
		m.wrote[p] = make(map[plan.Digest]bool)
	}
	m.wrote[p][f.digest], m.newest[p] = true, f.digest
	if _, known := m.owner[p]; !known {
		m.owner[p] = spec.Field
	}
	if old != nil && !m.unseen(w, p, old) {
		m.loses(w, spec, p, old, f)
	}
	for _, i := range f.holds {
		if old != nil && old.has(i) {
			continue
		}
		if why, went := m.gone[p][i]; went && !m.wanted(p, i) && !m.unsaved {
			w.violate("trust back", "%s gets %s, which went (%s) and which nobody asks for", p, authorities[i].letter, why)
		}
	}
}

// loses judges what goes with a version that is written over.
func (m *model) loses(w *env, spec plan.FileSpec, p string, old, f *file) {
	for _, i := range old.holds {
		if i < 0 || f.has(i) {
			continue
		}
		why, ok := m.mayGo(w, spec, p, i)
		if !ok {
			w.violate("trust lost", "%s loses %s: %s", p, authorities[i].letter, why)
		}
		w.counts.Certificates++
		if m.gone[p] == nil {
			m.gone[p] = make(map[int]string)
		}
		if m.gone[p][i] = why; why == "" || m.overrides.Applied != nil {
			delete(m.gone[p], i)
		}
	}
	m.usable(w, spec, p, old, f)
	if spec.Field == w.policy.Trust.Source && !w.setting.Beside {
		m.proven(w, p, old, f)
	}
}

// unseen tells whether somebody put a file there in this very turn, after the agent had looked. What is written over
// it nobody can know: see disk.Tree.Commit.
func (m *model) unseen(w *env, p string, f *file) bool {
	return m.others != m.begun && f.lived == w.clock.lived && w.disk.seen[p] != f
}

// unfinished is for a commit that failed: what it took away may have to be taken away again, or not.
func (m *model) unfinished(c plan.Commit, w *env) {
	for _, x := range c.Writes {
		if _, p, err := w.path(x.Key); err == nil {
			m.forgetGone(p)
		}
	}
}

// A file that was repaired this often within this time is repaired once in a pause: docs/usage/operating.md.
const (
	conflictAfter  = 3
	conflictMemory = 10 * time.Minute
	conflictPause  = time.Minute
)

// checkConflicts looks whether a file is repaired again and again that somebody else keeps changing. One that another
// field asks for now is counted anew.
func (m *model) checkConflicts(w *env, spec plan.FileSpec, p string, old, f *file) {
	if w.agent.life != m.repairsLife || len(w.faults.rate) > 0 { // a repair that failed does not count
		m.repairsLife, m.repairs = w.agent.life, make(map[repaired][]time.Duration)
		return
	}
	if old.mine() || m.newest[p] != f.digest { // what is new is no repair
		return
	}
	r := repaired{spec.Field, p}
	recent := slices.DeleteFunc(m.repairs[r],
		func(at time.Duration) bool { return w.clock.lived-at >= conflictMemory })
	if n := len(recent); w.agent.status.Error == "" && n > conflictAfter &&
		w.clock.lived-recent[n-1] < conflictPause-time.Second {
		w.violate("conflict", "%s is repaired for the %d. time, %v after the last", p, n+1, w.clock.lived-recent[n-1])
	}
	m.repairs[r] = append(recent, w.clock.lived)
}

// repaired is a file, and the field that had it repaired.
type repaired struct {
	field plan.Field
	path  string
}

func (f *file) mine() bool { return f != nil && f.ours }

// usable looks whether a file is left with nothing that can be used.
func (m *model) usable(w *env, spec plan.FileSpec, p string, old, f *file) {
	good := func(i int) bool { return i >= 0 && !w.isExpired(i) }
	if w.clock.offset != 0 || w.setting.Clocks || w.clock.slept || !m.read || w.setting.Beside || spec.Many() &&
		!spec.Field.List() || !slices.ContainsFunc(old.holds, good) || slices.ContainsFunc(f.holds, good) {
		return
	}
	soon := slices.ContainsFunc(f.holds,
		func(i int) bool { return epoch.Add(w.clock.truth - 6*time.Minute).Before(authorities[i].cert.NotAfter) })
	if !soon {
		w.violate("last", "%s has nothing left that can be used: %s, before it was %s", p, f, old)
	}
}

// wanted tells whether anybody asks for an authority in a file.
func (m *model) wanted(p string, i int) bool {
	return slices.Contains(m.withoutOverride.asked.files[p].holds, i) ||
		slices.Contains(m.withOverride.asked.files[p].holds, i)
}

// proven judges a version of the trust source that is smaller than the one before: the API server has to be
// verified with it, or not to be verified with what was there before either.
func (m *model) proven(w *env, p string, old, f *file) {
	shrinks := slices.ContainsFunc(old.holds, func(i int) bool { return i >= 0 && !f.has(i) })
	set := func(f *file) string { return letters(slices.Sorted(slices.Values(f.holds))) }
	if !shrinks || !old.whole || m.proofs[set(f)] {
		return
	}
	if verified, tried := m.asking[set(old)]; tried && !verified {
		return
	}
	w.violate("unproven", "%s shrinks from %s to %s, with which the API server was not verified", p, old, f)
}

// paused is why nothing may be taken away now, or nothing.
func (m *model) paused(w *env) string {
	if m.desired != nil && m.desired.Paused != "" {
		return "the ControllerConfig is paused"
	}
	if p := m.overrides.Pause; p != nil && !p.Over(w.clock.now(), w.clock.boot(), w.clock.up) {
		return "the operator paused the agent"
	}
	return ""
}

// mayGo tells whether trust may be taken out of a file that stays, and why or why not.
func (m *model) mayGo(w *env, spec plan.FileSpec, p string, i int) (why string, ok bool) {
	if spec.Many() && !spec.Field.List() {
		return "one certificate a file", true // what stands there is not its own
	}
	if why := m.paused(w); why != "" {
		return why, false
	}
	if !m.read && m.overrides.Applied == nil && !spec.Field.FromConfigMap() {
		return "the ControllerConfig was not read in this life", false
	}
	why, ok = m.withoutOverride.mayGo(w, p, i, m)
	if !ok {
		if _, ok = m.withOverride.mayGo(w, p, i, m); ok {
			why = "" // it may come back when the local override is not in force any more
		}
	}
	return why, ok
}

func (v *view) mayGo(w *env, p string, i int, m *model) (why string, ok bool) {
	x, asked := v.asked.files[p]
	switch {
	case slices.Contains(x.holds, i):
		return "it is asked for", false
	case m.revoked(i):
		return "revoked", true
	case !asked && !v.asked.dropped(p):
		return "the ControllerConfig says nothing about the file", false
	}
	// Which of the two views was in force when it went missing only the agent knows.
	for _, since := range []map[int]time.Duration{m.withoutOverride.since[p], m.withOverride.since[p]} {
		if why, ok := v.over(w, i, m, since, i); ok {
			return why, true
		}
	}
	return v.over(w, i, m, v.since[p], i)
}

// over tells whether the time of something that is missing has come. An index of -1 is for the whole file.
func (v *view) over(w *env, i int, m *model, since map[int]time.Duration, key int) (why string, ok bool) {
	at, missing := since[key]
	switch {
	case w.setting.Beside || w.setting.Hold == 0:
		return "mirror", true
	case i >= 0 && w.isExpired(i):
		return "expired", true
	case missing && w.clock.lived-at >= w.setting.Hold:
		return "held for long enough", true
	case missing && m.confirmed(at):
		return "confirmed", true
	case !missing:
		return "it was asked for until now", false
	}
	return fmt.Sprintf("it is missing for %v only", w.clock.lived-at), false
}

// confirmed tells whether an operator said that what is missing since then shall not wait.
func (m *model) confirmed(at time.Duration) bool {
	for _, n := range m.confirmations {
		if at <= n.at || n.open && n == m.confirmation {
			return true
		}
	}
	return false
}

// isExpired allows for a clock that is believed although it is some minutes fast.
func (w *env) isExpired(i int) bool {
	return epoch.Add(w.clock.truth + 6*time.Minute).After(authorities[i].cert.NotAfter)
}

// removing judges the removal of a whole file.
func (m *model) removing(w *env, p string, f *file) {
	claims := w.claims()
	switch {
	case !f.ours && !claims[p].Pending: // while that is so nobody knows who wrote what is claimed: see docs/decisions
		w.violate("I3", "%s goes, and its bytes are somebody else's", p)
	case !slices.Contains(claims[p].Digests, f.digest):
		w.violate("I3", "%s goes, and is not durably claimed", p)
	case !m.read && m.overrides.Applied == nil:
		w.violate("I3", "%s goes before the ControllerConfig was read in this life", p)
	case w.setting.Beside:
		w.violate("I3", "%s goes beside other writers", p)
	}
	if why := m.paused(w); why != "" {
		w.violate("trust lost", "%s goes, and %s", p, why)
	}
	why, ok := m.withoutOverride.mayRemove(w, p, m)
	if !ok {
		_, ok = m.withOverride.mayRemove(w, p, m)
	}
	unfit := m.allUnfit(w, f)
	if !ok && !unfit || !m.withoutOverride.asked.dropped(p) && !m.withOverride.asked.dropped(p) {
		w.violate("trust lost", "%s goes: %s", p, why)
	}
	if !unfit {
		m.mass(w, claims)
	}
	m.cameAndWent(w, p, claims)
	w.counts.Certificates += len(f.holds)
	m.forgetGone(p)
	delete(m.wrote, p) // what somebody puts there from now on is his
}

// cameAndWent excuses an action for a field that loses its only file before a unit has read that: nobody looked at the
// field before there was one, so that the unit may have read anything there.
func (m *model) cameAndWent(w *env, p string, claims map[string]claim) {
	for q, c := range claims {
		if q != p && c.Field == claims[p].Field && w.disk.files[q] != nil {
			return
		}
	}
	for _, name := range unitNames {
		if u := w.systemd.units[name]; m.concerns(w, name, p) && u.loaded != nil && u.loaded.files[p] == nil {
			m.excuse(u, "a field came and went before it was read")
		}
	}
}

func (m *model) revoked(i int) bool {
	return m.desired != nil && slices.Contains(m.desired.Revoked, authorities[i].cert.Fingerprint)
}

// allUnfit tells whether everything in a file is expired or revoked.
func (m *model) allUnfit(w *env, f *file) bool {
	return len(f.holds) > 0 && !slices.ContainsFunc(f.holds, func(i int) bool {
		return i < 0 || !w.isExpired(i) && !m.revoked(i)
	})
}

func (v *view) mayRemove(w *env, p string, m *model) (why string, ok bool) {
	if _, asked := v.asked.files[p]; asked {
		return "it is asked for", false
	}
	since := make(map[int]time.Duration)
	if at, missing := v.file[p]; missing {
		since[-1] = at
	}
	return v.over(w, -1, m, since, -1)
}

// mass looks, once a commit, whether more than half of what is claimed goes without a confirmation.
func (m *model) mass(w *env, claims map[string]claim) {
	if m.commit == w.counts.Commits || w.setting.Hold == 0 || len(m.confirmations) > 0 || m.reconfigured {
		return
	}
	m.commit = w.counts.Commits
	present, missing := 0, 0
	for p := range claims {
		if !m.withoutOverride.asked.dropped(p) || !m.withOverride.asked.dropped(p) || m.unsaved && m.silent(p) {
			present++
		} else if f := w.disk.files[p]; f != nil && w.disk.odd[p] == "" && !m.unseen(w, p, f) {
			missing++
		}
	}
	for p := range m.inForce(w) { // what would be there too, if only it could be claimed, or staged
		if _, claimed := claims[p]; !claimed && !w.single(p) && w.disk.files[p] == nil {
			present++
		}
	}
	if missing > present {
		w.violate("mass", "%d of %d files go at once, and nobody confirmed it", missing, missing+present)
	}
}

// silent tells whether the field that asked for a path last says nothing now: its claim may not be durable.
func (m *model) silent(p string) bool {
	return m.desired != nil && !m.desired.Listed[m.owner[p]]
}

// claims are those that are durable, by path.
func (w *env) claims() map[string]claim {
	const name = "state.json"
	m := &w.memory
	now := string(m.files[name])
	if now == m.decoded {
		return m.claimed
	}
	m.decoded = now
	m.claimed = readClaims(byHand{m})
	return m.claimed
}

// claim is one of them, as package state keeps it.
type claim = plan.Claim

func readClaims(dir state.Dir) map[string]claim {
	st, _, err := state.Open(dir).Peek()
	if err != nil {
		return nil
	}
	return st.Owned
}

func (w *env) claimed(p string) bool {
	_, ok := w.claims()[p]
	return ok
}

// followed tells whether a file is claimed for a field that is still configured: nobody looks at those of others.
func (w *env) followed(p string) bool {
	at, ok := w.policy.Path(w.claims()[p].Key)
	return ok && at == p
}
