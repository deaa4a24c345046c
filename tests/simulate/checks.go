// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"slices"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
)

// acting judges an action that reaches systemd.
func (m *model) acting(w *env, u *unit) {
	if why := m.paused(w); why != "" {
		w.violate("paused", "an action of %s, and %s", u.name, why)
	}
	if w.systemd.busy(u.name) != nil {
		w.violate("two jobs", "a second job for %s", u.name)
	}
	if !w.setting.Clocks && u.verb.Starts() && u.boot == w.clock.boot() && w.clock.lived-u.started < 4*time.Second {
		w.violate("start limit", "%s starts again after %v", u.name, w.clock.lived-u.started)
	}
	m.fit(w, u)
	m.checkBackoff(w, u)
	for p, failed := range w.disk.failed {
		if _, asked := m.inForce(w)[p]; asked && failed && m.concerns(w, u.name, p) { // for any other nobody waits
			w.violate("unsynced", "%s %s, and a power cut would undo what was done to %s", u.verb, u.name, p)
		}
	}
	if u.excuse == "" && !m.needed(w, u) && !m.unclaimed(w, u) {
		w.violate("needless", "%s %s, which has loaded what is on disk; the agent says: %s", u.verb, u.name, w.agent.trail)
	}
}

// needed tells whether a unit has anything new to load.
func (m *model) needed(w *env, u *unit) bool {
	if u.loaded == nil || u.verb == unitplan.Restart && u.made != w.clock.boots {
		return true
	}
	if m.inputs(w, u.name, u.loaded.files) != m.inputs(w, u.name, w.disk.files) {
		return true
	}
	return len(w.policy.Prerequisites(u.name)) > 0 && u.loaded.product != w.systemd.units[maker].product
}

// unclaimed tells whether a unit reads a file of a field with many whose bytes we wrote, and that a lost memory has us
// know nothing of any more: whether it counts is a matter of whether it is asked for just now. Whoever wrote the same
// bytes again does not change that.
func (m *model) unclaimed(w *env, u *unit) bool {
	for p, f := range w.disk.files {
		if (f.ours || m.wrote[p][f.digest]) && !w.single(p) && m.concerns(w, u.name, p) && !w.claimed(p) {
			return true
		}
	}
	return false
}

// near tells whether the content of a unit's files changed so near to its start that nobody can tell what it
// read.
func (m *model) near(w *env, u *unit) bool {
	for p, f := range w.disk.files {
		if m.concerns(w, u.name, p) && f.lived > u.started-nearby {
			return true
		}
	}
	return false
}

// remade tells whether what a unit loads of a oneshot was made of files that changed since the boot, or will be once
// they are repaired: without memory nobody can tell whether that was before the unit loaded it.
func (m *model) remade(w *env, u *unit) bool {
	if len(w.policy.Prerequisites(u.name)) > 0 && w.systemd.unmade() {
		return true
	}
	for p, f := range w.disk.files {
		for _, name := range w.policy.Prerequisites(u.name) {
			if m.concerns(w, name, p) && f.lived > w.clock.lived-w.clock.up {
				return true
			}
		}
	}
	return false
}

// fit looks whether a unit is made to load what the agent itself would refuse.
func (m *model) fit(w *env, u *unit) {
	if m.others != m.begun {
		return // somebody changed a file in this very turn
	}
	for p := range m.withoutOverride.asked.files {
		if !m.concerns(w, u.name, p) || m.overrides.Applied != nil {
			continue
		}
		if f := w.disk.files[p]; w.disk.odd[p] != "" || f != nil && !f.whole {
			w.violate("unfit", "%s %s while %s is %s", u.verb, u.name, p, orOdd(w.disk.odd[p], f))
		}
	}
}

func orOdd(kind plan.FileKind, f *file) string {
	if kind != "" {
		return string(kind)
	}
	return f.String()
}

// checkBackoff looks whether an action is repeated that failed again and again.
func (m *model) checkBackoff(w *env, u *unit) {
	n, inputs := 0, m.visible(w, u.name)
	for _, t := range slices.Backward(u.tries) {
		if !t.failed || t.inputs != inputs {
			break
		}
		n++
	}
	if n < 6 || m.unclaimed(w, u) {
		return
	}
	last := u.tries[len(u.tries)-1]
	if w.clock.set && last.life != w.agent.life {
		return // when that was it only knows by the clock
	}
	if w.clock.lived-last.at < 20*time.Minute {
		w.violate("backoff", "%s failed %d times with the same files, and is tried again after %v", u.name, n,
			w.clock.lived-last.at)
	}
}

// overdue looks for holds that last longer than the agent says. Its clock says until when by the minute.
func (m *model) overdue(w *env) {
	s := w.agent.status
	if w.setting.Clocks || w.clock.slept || s.Error != "" || s.Paused != "" {
		return
	}
	for _, h := range s.Held {
		if !h.Until.IsZero() && w.clock.wall().Sub(h.Until) > 3*time.Minute {
			w.violate("overdue", "%s is held until %v, which was %v ago", h.Key, h.Until, w.clock.wall().Sub(h.Until))
		}
	}
}

// atRest judges what the agent says of the units, after each turn.
func (w *env) atRest() {
	m := &w.model
	if m.seen != m.others || m.changes != w.disk.changes || w.violation != nil || len(w.agent.status.Files) == 0 {
		return // it has not seen yet how things are, or nothing is asked for and nobody looks
	}
	for _, s := range w.agent.status.Units {
		u := w.systemd.units[s.Name]
		if s.State != "up to date" || w.systemd.busy(u.name) != nil {
			continue
		}
		now := verdict{w.disk.changes, m.others, u.loaded}
		if m.right[u.name] == now {
			m.settle(w, u)
			continue
		}
		if u.active || u.verb == unitplan.Restart {
			m.hasLoaded(w, u, s.Reason)
		}
		m.right[u.name] = now
		m.settle(w, u)
	}
}

// settle ends the excuse of a unit that is as it shall be. As long as the ControllerConfig was not read, what is called
// loaded may be less than what is asked for; and as long as a oneshot has not made what the unit loads, too.
func (m *model) settle(w *env, u *unit) {
	if len(w.policy.Prerequisites(u.name)) > 0 && m.unsettled(w, maker) {
		return
	}
	if m.read && u.excuse != "" && w.agent.status.Error == "" {
		w.logf("  %s is as it shall be", u.name)
		u.excuse = ""
	}
}

// hasLoaded judges a unit that is called loaded (I2).
func (m *model) hasLoaded(w *env, u *unit, reason string) {
	wanted := m.inForce(w)
	for _, p := range m.known(w) {
		if !m.concerns(w, u.name, p) || w.disk.odd[p] != "" {
			continue
		}
		f := w.disk.files[p]
		_, asked := wanted[p]
		many := !w.single(p)
		if many && !asked && (f == nil || !f.ours || !m.read || !w.followed(p)) {
			continue
		}
		var has *file
		if u.loaded != nil {
			has = u.loaded.files[p]
		}
		if w.clock.set && m.lost || u.byTime || u.undone || u.forgotten {
			continue // times of files and of starts say nothing any more, or what is remembered is older than what was loaded
		}
		if idOf(f) != idOf(has) {
			kind := "I2"
			if w.agent.status.Error != "" {
				kind = "stale status"
			}
			w.violate(kind, "%s is called loaded (%s): it has %s of %s, and on disk is %s", u.name, reason, has, p, f)
			return
		}
	}
}

// inForce is what is asked for by the override that is in force.
func (m *model) inForce(w *env) map[string]want {
	if o := w.agent.status.Override; o != nil && o.State == "in force" {
		return m.withOverride.asked.files
	}
	return m.withoutOverride.asked.files
}

func idOf(f *file) string {
	if f == nil {
		return ""
	}
	return f.id
}

// known are the paths that are asked for or have a file.
func (m *model) known(w *env) (all []string) {
	for p := range m.withoutOverride.asked.files {
		all = append(all, p)
	}
	for p := range w.disk.files {
		all = append(all, p)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// prompt judges what the agent did with what it was just given: trust grows at once.
func (m *model) prompt(w *env, before asked) {
	if !w.agent.running || w.violation != nil || len(w.faults.rate) > 0 || w.agent.status.Error != "" ||
		m.overrides.Applied != nil || m.overridesFailed || w.setting.Beside || len(w.agent.status.Conflicts) > 0 {
		return
	}
	for _, p := range m.known(w) {
		x, asked := m.withoutOverride.asked.files[p]
		f := w.disk.files[p]
		if !asked || x.digest == before.files[p].digest || w.disk.odd[p] != "" || f == nil && p == kubeconfig {
			continue
		}
		for _, i := range x.holds {
			if !f.holdsIt(i) {
				w.violate("late", "%s is asked to hold %s, and still is %s", p, letters(x.holds), f)
				return
			}
		}
	}
}

func (f *file) holdsIt(i int) bool { return f != nil && f.has(i) }
