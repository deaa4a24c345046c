// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"slices"
	"strings"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
)

// converge ends all that goes wrong, and looks whether everything comes right, and then stays so (liveness).
func (w *env) converge() {
	r := w.draw("end", 0)
	w.logf("---- nothing goes wrong any more")
	w.repair()
	w.start()
	if r.IntN(4) == 0 {
		w.logf("the API server is away for 80 minutes")
		w.advance(80 * time.Minute)
		w.settled("while the API server is away")
	}
	w.calm(r.IntN(2) == 0)
	if w.setting.Spread == 0 && !w.systemd.failing() && len(w.agent.status.Held) == 0 && r.IntN(2) == 0 {
		w.advance(3 * time.Minute)
		if !w.systemd.failing() && len(w.agent.status.Conflicts) == 0 {
			w.settled("after three minutes")
		}
	}
	if r.IntN(3) == 0 {
		holds := len(w.agent.status.Held) > 0 // one that ends right now leaves something to do
		for range 150 {
			w.advance(5 * time.Second)
			w.tick(r)
		}
		if w.setting.Spread == 0 && !w.systemd.failing() && !holds {
			w.settled("among events that mean nothing")
		}
	}
	w.advance(2*time.Hour + 10*time.Minute)
	w.settled("in the end")
	w.holdsWhatIsAsked()
	w.idle()
}

// repair ends what the steps began.
func (w *env) repair() {
	w.faults.rate, w.faults.killIn, w.faults.killDone, w.faults.scribbleIn = nil, 0, false, 0
	w.disk.even()
	w.systemd.fails, w.systemd.pace = 0, quick
	for _, j := range w.systemd.jobs {
		j.start, j.read, j.end = min(j.start, w.clock.mono), min(j.read, w.clock.mono+time.Second),
			min(j.end, w.clock.mono+2*time.Second)
	}
	w.clock.offset = 0
	w.cluster.away = false
	for _, name := range []string{"operator/applied.json", "operator/pause.json"} {
		delete(w.memory.files, name)
	}
	if w.disk.files[kubeconfig] == nil && w.setting.ConfigMap {
		w.disk.set(kubeconfig, w.disk.version(bundle([]int{0}), 0o600), true)
	}
	w.model.others++
	if w.setting.Clocks {
		w.model.excuseAll(w, "the clock was set")
	}
}

// calm has everything read that is published, without a pause.
func (w *env) calm(renew bool) {
	c := &w.cluster
	if c.object != nil && (c.object.paused || renew) {
		c.published++
		n := draft(c.object, c.published)
		n.paused = false
		c.object = n
		w.logf("the ControllerConfig is now %s", n)
	}
	w.notice()
	w.read(0)
	w.read(1)
}

// settled looks whether every unit that runs has loaded what is on disk, and is called so. What changed right before,
// by the end of a hold, is given the time that it takes.
func (w *env) settled(when string) {
	enough := w.setting.Spread + time.Minute
	for n := 0; n < 5 && w.clock.lived-w.disk.changed < enough; n++ {
		w.advance(enough)
	}
	if w.violation != nil {
		return
	}
	if t := w.agent.status.Error; t != "" && w.cluster.parts[0].desired != nil {
		w.violate("stuck", "%s there is still trouble: %s", when, t)
	}
	for _, s := range w.agent.status.Units {
		u := w.systemd.units[s.Name]
		if !u.active && u.verb != unitplan.Restart {
			continue
		}
		if s.State != "up to date" && w.cluster.parts[0].desired != nil && w.agent.status.Paused == "" {
			w.violate("stuck", "%s %s is %s: %s", when, u.name, s.State, s.Reason)
		}
		if s.State == "up to date" {
			w.model.hasLoaded(w, u, s.Reason+", "+when)
		}
		made := w.systemd.units[maker].product
		if w.policy.Prerequisites(u.name) != nil && u.loaded != nil && !u.behind && !u.byTime &&
			w.looked(u.loaded.product) != w.looked(made) && s.State == "up to date" {
			w.violate("made", "%s %s is called loaded (%s), and has not what %s made: %q, it made %q", when, u.name, s.Reason,
				maker, u.loaded.product, made)
		}
	}
}

// looked is the part of a product that the agent can know of: not what comes from a file that nobody asks for or
// claims, unless the agent took that away.
func (w *env) looked(product string) string {
	asked := w.model.inForce(w)
	return strings.Join(slices.DeleteFunc(strings.Fields(product), func(input string) bool {
		p, _, _ := strings.Cut(input, "=")
		_, is := asked[p]
		return !is && !w.disk.taken[p] && !w.followed(p) && !w.single(p)
	}), " ")
}

// holdsWhatIsAsked looks whether every file holds what is asked for, and nothing else without a reason.
func (w *env) holdsWhatIsAsked() {
	m, s := &w.model, w.agent.status
	for _, p := range m.known(w) {
		if w.violation != nil {
			return
		}
		x, asked := m.withoutOverride.asked.files[p]
		f := w.disk.files[p]
		for _, i := range x.holds {
			if !f.holdsIt(i) {
				w.violate("stuck", "in the end %s shall hold %s, and is %s; kept %v, refused %v", p, letters(x.holds), f,
					s.Retained,
					s.Refused)
			}
		}
		if f == nil || w.explained(p) {
			continue
		}
		if spec := w.specOf(p); asked && !w.setting.Beside && !spec.Field.Edits() && f.mode != spec.Mode {
			w.violate("stuck", "in the end %s has the mode %v", p, f.mode)
		}
		extra := slices.DeleteFunc(slices.Clone(f.holds), func(i int) bool { return slices.Contains(x.holds, i) })
		if asked && (len(extra) > 0 || !f.whole) {
			w.violate("stays", "in the end %s shall hold %s, and is %s, and nothing says why", p, letters(x.holds), f)
		}
		if !asked && f.ours && m.withoutOverride.asked.dropped(p) && !m.lost && !m.unsaved && !m.reconfigured {
			w.violate("stays", "in the end nobody asks for %s, and nothing says why it is there: kept %v, refused %v, held %v",
				p, s.Retained, s.Refused, s.Held)
		}
	}
}

// explained tells whether the status names a file among what is held, kept or refused.
func (w *env) explained(p string) bool {
	s := w.agent.status
	is := func(k plan.Key) bool {
		spec, q, err := w.path(k)
		return q == p || err != nil && spec.Many() && matches(spec, p) // a list with a name that cannot be used
	}
	return slices.ContainsFunc(slices.Concat(s.Retained, s.Refused), func(r plan.Refusal) bool { return is(r.Key) }) ||
		slices.ContainsFunc(s.Held, func(h report.Held) bool { return is(h.Key) })
}

// idle looks whether nothing happens when there is nothing to do.
func (w *env) idle() {
	if w.violation != nil {
		return
	}
	// What expires does so before: it takes a read to believe the clock.
	if left := 3*time.Hour + 10*time.Minute - w.clock.truth; left > 0 {
		w.advance(left)
	}
	w.advance(2 * time.Hour)
	writes, actions, turns := w.counts.Writes+w.counts.Removals, w.counts.Actions, w.counts.Turns
	w.advance(5 * time.Hour)
	if n := w.counts.Writes + w.counts.Removals - writes; n > 0 {
		w.violate("restless", "%d writes in five hours in which nothing happened", n)
	}
	if n := w.counts.Actions - actions; n > 0 {
		w.violate("restless", "%d actions in five hours in which nothing happened", n)
	}
	if n := w.counts.Turns - turns; n > 40 {
		w.violate("restless", "%d turns in five hours in which nothing happened", n)
	}
}
