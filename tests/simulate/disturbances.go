// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/state"
	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
)

// othersAct has somebody act on a unit.
func (w *env) othersAct(r *rand.Rand) {
	u := w.systemd.units[pick(r, unitNames...)]
	n := r.IntN(6)
	if w.systemd.busy(u.name) != nil {
		return
	}
	w.model.others++
	switch {
	case n < 3:
		w.logf("somebody restarts %s", u.name)
		w.systemd.begins(u)
		w.systemd.reads(u, w.systemd.look())
		u.early = w.systemd.unmade()
		u.behind = w.model.lost && u.early // without memory, what an earlier boot wrote is taken for made
		u.tries = nil                      // this one did not fail
		if u.verb == unitplan.Restart {
			u.active, u.made, u.product = false, w.clock.boots, w.model.inputs(w, maker, w.disk.files)
			w.systemd.foreign = true
		}
		if w.setting.Clocks || w.clock.slept || w.model.near(w, u) {
			w.model.excuse(u, "somebody restarted it near a change")
		}
	case n == 3:
		w.logf("somebody stops %s", u.name)
		u.active = false
	case n == 4 && u.verb == unitplan.Reload && u.active:
		w.logf("somebody reloads %s", u.name)
		if w.model.needed(w, u) {
			w.model.excuse(u, "somebody reloaded it, which nobody can see")
		}
		before := u.loaded
		w.systemd.reads(u, w.systemd.look())
		u.before = before
	case n == 5 && u.verb == unitplan.Restart:
		w.logf("systemd forgets %s", u.name)
		u.invocation, u.since, u.mono, u.started = "", time.Time{}, 0, -time.Hour
		w.model.excuse(u, "systemd forgot it")
	}
	if r.IntN(2) == 0 {
		w.notice()
	}
}

// setJobs decides how jobs go from now on.
func (w *env) setJobs(r *rand.Rand) {
	s := &w.systemd
	s.fails, s.pace = pick(r, 0, 0, 0.5, 1), pick(r, quick, quick, slow, slow, stuck)
	w.logf("jobs are %s from now on, and %v of them fail", s.pace, s.fails)
}

// setFaults decides what fails from now on.
func (w *env) setFaults(r *rand.Rand) {
	f := &w.faults
	f.rate = nil
	if r.IntN(4) == 0 {
		w.logf("nothing fails any more")
		return
	}
	f.rng, f.late = rand.New(rand.NewPCG(r.Uint64(), 1)), r.IntN(2) == 0
	f.rate = map[contact]float64{pick(r, failing...): pick(r, 0.1, 0.5, 1)}
	for c, rate := range f.rate {
		w.logf("from now on %v of the tries to %s fail (after the effect as often as before: %v)", rate, c, f.late)
		if c == saving || c == acting || c == asking {
			w.model.excuseAll(w, "the agent cannot "+string(c))
		}
	}
}

// setOdd puts something where a file should be that can neither be read nor written over, or takes it away.
func (w *env) setOdd(r *rand.Rand) {
	w.model.others++
	if len(w.disk.odd) > 0 && r.IntN(2) == 0 {
		w.logf("every file can be read again")
		w.disk.even()
	} else {
		p, kind := w.place(r), pick(r, plan.Irregular, plan.Unreadable)
		w.logf("%s is %s from now on", p, kind)
		w.disk.odd[p] = kind
		w.disk.turned(p)
	}
	if r.IntN(4) > 0 {
		w.notice()
	}
}

// dropBus has the agent lose sight of all its jobs. They go on.
func (w *env) dropBus(*rand.Rand) {
	for _, j := range w.systemd.jobs {
		if j.call != nil {
			w.logf("the bus is lost while %s has a job", j.unit.name)
			w.systemd.leave(j, "the bus was lost")
		}
	}
	w.agent.deliver()
}

func (w *env) setClock(r *rand.Rand) {
	w.clock.offset += pick(r, time.Hour, -time.Hour, 3*time.Second, -3*time.Second, 1000*time.Hour, -1000*time.Hour)
	w.clock.set = true
	w.logf("the wall clock is set: it is now wrong by %v", w.clock.offset)
	w.model.excuseAll(w, "the clock was set")
}

func (w *env) changeServer(r *rand.Rand) {
	w.cluster.serves, w.cluster.away = r.IntN(lasting), r.IntN(4) == 0
	w.logf("the API server is now one of authority %s (nobody answers: %v)", authorities[w.cluster.serves].letter,
		w.cluster.away)
}

// lose takes /var/lib away, or parts of it, while the agent is off.
func (w *env) lose(r *rand.Rand) {
	w.stop()
	m := &w.memory
	n := r.IntN(4)
	w.systemd.forgive()
	w.model.lost = true
	w.logf("/var/lib is lost: %s", []string{"all of it", "the memory", "the kept bytes", "the memory is damaged"}[n])
	for _, name := range slices.Sorted(maps.Keys(m.files)) {
		switch {
		case n == 0, n == 1 && name == "state.json", n == 2 && name != "state.json":
			delete(m.files, name)
		case n == 3 && name == "state.json":
			m.files[name] = m.files[name][:len(m.files[name])/2]
		}
	}
	clear(w.model.gone)
	for _, name := range unitNames {
		u := w.systemd.units[name]
		if n != 2 && (u.verb != unitplan.TryRestart || w.setting.Clocks || w.model.near(w, u) || w.model.remade(w, u)) {
			w.model.excuse(u, "the agent lost its memory")
		}
		u.behind = u.behind || n != 2 && u.early
		if n == 2 && w.readsUnclaimed(name) {
			w.model.excuse(u, "what is not claimed counts no more if only the kept bytes asked for it")
		}
	}
	m.open()
	w.restart(r)
}

// readsUnclaimed tells whether the unit reads a file that nobody looks at once nobody asks for it.
func (w *env) readsUnclaimed(unit string) bool {
	for p := range w.disk.files {
		if !w.followed(p) && w.model.concerns(w, unit, p) {
			return true
		}
	}
	return false
}

// operate has the operator apply, revert, pause or resume something by hand.
func (w *env) operate(r *rand.Rand) {
	dir := byHand{&w.memory}
	var err error
	switch r.IntN(7) {
	case 0, 1, 2:
		a := w.drawOverride(r)
		w.logf("the operator applies %s (now: %v)", describe(a), a.Now)
		err = state.SetOverrides(dir, state.Overrides{Applied: a})
	case 3:
		w.logf("the operator takes back what was applied")
		_, err = state.Revert(dir)
	case 4:
		d := span(r)
		w.logf("the operator pauses the agent for %v", d)
		err = state.SetOverrides(dir, state.Overrides{Pause: &state.Pause{Reason: "work", At: w.clock.wall(),
			Until: w.clock.wall().Add(d), Boot: w.clock.boot(), Uptime: w.clock.up}})
	case 5:
		w.logf("the operator resumes")
		_, err = state.Resume(dir)
	case 6:
		w.logf("what the operator applied is damaged on disk")
		dir.files["operator/applied.json"] = []byte("{")
	}
	if err != nil {
		panic(err)
	}
	w.notice()
}

func describe(a *state.Applied) string {
	out := ""
	for _, f := range a.Files {
		out += fmt.Sprintf(" %s=%s", f.Key, contentOf(f.Data))
	}
	return fmt.Sprintf("%s, lists %v", out, a.Lists)
}

// drawOverride makes up content that an operator applies.
func (w *env) drawOverride(r *rand.Rand) *state.Applied {
	a := &state.Applied{ID: fmt.Sprint("word ", r.Uint32()), Source: "by hand", At: w.clock.wall(), Now: r.IntN(3) == 0}
	if r.IntN(2) == 0 {
		a.Files = append(a.Files, state.AppliedFile{Key: plan.Key{Field: plan.KubeAPIServerServingCAData},
			Data: bundle(someAuthorities(r, 3))})
	}
	if r.IntN(2) == 0 {
		a.Lists = []plan.Field{plan.ImageRegistryBundleData}
		for _, name := range registryNames[:r.IntN(3)] {
			a.Files = append(a.Files, state.AppliedFile{Key: plan.Key{Field: plan.ImageRegistryBundleData, Name: name},
				Data: bundle(someAuthorities(r, 2))})
		}
	}
	return a
}

// reconfigure ends the agent and starts one with other settings, as a changed configuration does.
func (w *env) reconfigure(r *rand.Rand) {
	w.stop()
	s := &w.setting
	switch r.IntN(8) {
	case 0:
		s.NoRoot = !s.NoRoot
	case 1:
		s.TwoLists = !s.TwoLists
	case 2:
		s.PerCertificate = !s.PerCertificate
	case 3:
		s.Elsewhere = !s.Elsewhere
	case 4:
		s.NoRestarter = !s.NoRestarter
	case 5:
		s.Beside = !s.Beside
	case 6:
		s.Hold = pick(r, time.Hour, 10*time.Minute, 0)
	}
	w.policy = s.policy()
	w.logf("the configuration is now: %s", s)
	w.model.excuseAll(w, "the configuration changed")
	clear(w.model.gone)
	w.model.reconfigured = true
	w.start()
	w.mostly(r, w.readBoth)
}
