// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/desired"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
)

// operation is something that can happen in a step.
type operation struct {
	name   string
	weight int
	// on tells whether a setting has it; nil means always.
	on func(Setting) bool
	do func(*env, *rand.Rand)
}

// operations are all that can happen. A walk names them, so that a name must not change its meaning while walks
// are remembered that use it.
var operations = []operation{
	{"publish", 20, nil, (*env).publishAndRead},
	{"configmap", 8, func(s Setting) bool { return s.ConfigMap }, func(w *env,
		r *rand.Rand) {
		w.publishConfigMap(r)
		w.readBoth(r)
	}},
	{"read", 4, nil, func(w *env, r *rand.Rand) { w.readBoth(r) }},
	{"wait", 26, nil, (*env).wait},
	{"start", 6, nil, func(w *env, r *rand.Rand) { w.start(); w.mostly(r, w.readBoth) }},
	{"noise", 2, nil, (*env).noise},
	{"kill", 3, crashes, (*env).killNow},
	{"kill-soon", 7, crashes, (*env).killSoon},
	{"stop", 2, crashes, func(w *env, r *rand.Rand) { w.stop(); w.restart(r) }},
	{"reboot", 5, func(s Setting) bool { return s.Reboots }, (*env).reboot},
	{"suspend", 2, nil, (*env).suspend},
	{"drift", 9, drifts, (*env).drift},
	{"drift-soon", 3, drifts, (*env).driftSoon},
	{"quarrel", 1, drifts, (*env).conflict},
	{"others", 7, func(s Setting) bool { return s.Others && s.Units }, (*env).othersAct},
	{"jobs", 5, func(s Setting) bool { return s.Jobs && s.Units }, (*env).setJobs},
	{"faults", 8, faulty, (*env).setFaults},
	{"odd", 3, faulty, (*env).setOdd},
	{"bus", 2, faulty, (*env).dropBus},
	{"clock", 4, func(s Setting) bool { return s.Clocks }, (*env).setClock},
	{"operator", 7, func(s Setting) bool { return s.Operator }, (*env).operate},
	{"lose", 3, func(s Setting) bool { return s.Losses }, (*env).lose},
	{"reconfigure", 4, func(s Setting) bool { return s.Reconfigure }, (*env).reconfigure},
	{"server", 4, func(s Setting) bool { return s.Proof }, (*env).changeServer},
}

func crashes(s Setting) bool { return s.Crashes }
func drifts(s Setting) bool  { return s.Drift }
func faulty(s Setting) bool  { return s.Faults }

func operationNamed(name string) (operation, bool) {
	i := slices.IndexFunc(operations, func(o operation) bool { return o.name == name })
	if i < 0 {
		return operation{}, false
	}
	return operations[i], true
}

func (w *env) mostly(r *rand.Rand, do func(*rand.Rand)) {
	if r.IntN(4) > 0 {
		do(r)
	}
}

func (w *env) publishAndRead(r *rand.Rand) {
	w.publish(r)
	w.mostly(r, w.readBoth)
}

// readBoth has the agent read what is new, in either order, or only one of the two.
func (w *env) readBoth(r *rand.Rand) {
	first := r.IntN(2)
	before := w.model.withoutOverride.asked
	w.read(first)
	if first == 1 || r.IntN(4) > 0 {
		w.read(1 - first)
	}
	if w.agent.running && w.violation == nil {
		w.advance(w.setting.Rest + time.Millisecond)
	}
	w.model.prompt(w, before)
}

// Spans are for how long steps wait: seconds matter most, and hours have to come.
var spans = []time.Duration{5 * time.Millisecond, 200 * time.Millisecond, time.Second, 2 * time.Second,
	2500 * time.Millisecond, 5 * time.Second,
	12 * time.Second, time.Minute, 3 * time.Minute, 11 * time.Minute, 40 * time.Minute, 65 * time.Minute}

func span(r *rand.Rand) time.Duration { return spans[min(r.IntN(len(spans)), r.IntN(len(spans)+3))] }

func (w *env) wait(r *rand.Rand) {
	d := span(r)
	w.logf("%v pass", d)
	w.advance(d)
}

// noise is a time in which things reach the agent that mean nothing.
func (w *env) noise(r *rand.Rand) {
	every := time.Duration(300+r.IntN(3000)) * time.Millisecond
	w.logf("noise: every %v something that means nothing", every)
	for range 40 {
		w.advance(every)
		w.tick(r)
	}
}

func (w *env) tick(r *rand.Rand) {
	if !w.agent.running || w.violation != nil {
		return
	}
	if r.IntN(2) == 0 {
		w.notice()
	} else {
		w.give(desired.Reading{State: pick[report.SourceState](r, report.Following, "reconnecting")})
	}
}

// restart is what systemd does with a service that ended: mostly it starts it again soon.
func (w *env) restart(r *rand.Rand) {
	w.advance(pick(r, 100*time.Millisecond, 2*time.Second, time.Minute))
	if w.memory.open(); r.IntN(5) > 0 {
		w.start()
		w.mostly(r, w.readBoth)
	}
}

func (w *env) killNow(r *rand.Rand) {
	w.counts.Kills++
	w.kill()
	w.restart(r)
}

func (w *env) killSoon(r *rand.Rand) {
	w.faults.killIn, w.faults.killLate = 1+r.IntN(14), r.IntN(2) == 0
	if r.IntN(4) == 0 {
		w.faults.killIn, w.faults.killDone = 0, true
		w.logf("the agent will die with its next commit")
	} else {
		w.logf("the agent will die at its contact number %d from here", w.faults.killIn)
	}
	w.memory.open()
}

func (w *env) suspend(r *rand.Rand) {
	d := span(r)
	w.logf("the host sleeps for %v", d)
	w.clock.sleep(d)
}

func (w *env) reboot(r *rand.Rand) {
	w.counts.Boots++
	if r.IntN(3) == 0 {
		w.stop()
	} else {
		w.kill()
	}
	power := r.IntN(2) == 0
	w.logf("the host reboots (power cut: %v)", power)
	if power {
		w.disk.cutPower(func() bool { return r.IntN(2) == 0 })
	}
	clear(w.disk.volatile)
	w.systemd.reboots()
	w.clock.boots++
	w.clock.mono, w.clock.up, w.clock.slept = 0, 0, false
	w.clock.truth += time.Duration(20+r.IntN(100)) * time.Second
	w.advance(time.Second)
	if w.setting.Clocks && r.IntN(2) == 0 {
		w.setClock(r)
	}
	w.memory.open()
	w.model.others++
	if w.setting.Clocks {
		w.model.excuseAll(w, "the clock of another boot may have been wrong")
	}
	early := r.IntN(2) == 0
	if early {
		w.systemd.boots()
	}
	w.advance(time.Duration(r.IntN(4000)) * time.Millisecond)
	w.start()
	if !early {
		w.advance(time.Duration(r.IntN(4000)) * time.Millisecond)
		w.systemd.boots()
		w.model.others++
	}
	w.mostly(r, w.readBoth)
}

// place draws the path of a managed file, or of one that could be.
func (w *env) place(r *rand.Rand) string {
	all := []string{kubeletCA, rootCA}
	for _, spec := range w.policy.Files {
		if spec.Field == plan.AdditionalTrustBundle && !spec.Many() {
			all = append(all, spec.Path)
		}
		if spec.Field == plan.ImageRegistryBundleData {
			p, _ := spec.PathOf(pick(r, registryNames...))
			all = append(all, p)
		}
	}
	all = append(all, slices.Sorted(maps.Keys(w.disk.files))...)
	return pick(r, all...)
}

// disturb changes a file as somebody else would.
func (w *env) disturb(p string, r *rand.Rand) {
	w.excuseUnsettled(p)
	f := w.disk.files[p]
	put := func(data []byte) {
		mode := usualMode(p)
		if f != nil {
			mode = f.mode
		}
		n := w.disk.version(data, mode)
		n.ours = w.model.wrote[p][n.digest] && (w.single(p) || w.claimed(p)) // the same bytes are as good as ours
		w.disk.set(p, n, true)
	}
	n := r.IntN(9)
	if f == nil && n < 5 || p == kubeconfig && n < 4 {
		n = 8
	}
	switch n {
	case 0:
		put([]byte("junk\n"))
	case 1:
		put(f.data[:len(f.data)*3/4])
	case 2:
		w.disk.set(p, nil, true)
	case 3:
		g := *f
		g.mode, g.changed, g.lived = 0o777, w.clock.wall().Truncate(4*time.Millisecond), w.clock.lived
		w.disk.set(p, &g, true)
	case 4:
		put(f.data)
	case 5, 6:
		if x, ok := w.model.withoutOverride.asked.files[p]; ok {
			put(bundle(x.holds))
			break
		}
		fallthrough
	default:
		put(bundle(someAuthorities(r, 3)))
	}
	w.model.forgetGone(p)
	w.model.others++
	w.logf("somebody changes %s: %s (it had %s)", p, w.disk.files[p], f)
	if u := w.systemd.units[reader]; w.model.concerns(w, reader, p) {
		w.model.excuse(u, "somebody changed a file, and may have had it reloaded")
		u.undone = u.before != nil && w.model.inputs(w, reader, u.before.files) == w.model.inputs(w, reader, w.disk.files)
	}
}

// excuseUnsettled is for a file that changes, if only for a moment: of a unit of which it is not known yet what it has
// loaded in this run, it is not known afterwards either.
func (w *env) excuseUnsettled(p string) {
	for _, name := range unitNames {
		if w.model.concerns(w, name, p) && (!w.agent.running || w.model.unsettled(w, name) ||
			w.model.seen != w.model.others) {
			w.model.excuse(w.systemd.units[name], "a file changed before it was known what the unit has loaded")
		}
	}
}

func usualMode(p string) fs.FileMode {
	if p == kubeconfig {
		return 0o600
	}
	return 0o644
}

func (w *env) drift(r *rand.Rand) {
	w.disturb(w.place(r), r)
	if r.IntN(4) > 0 {
		w.notice()
	} else {
		w.logf("  and nothing tells the agent")
	}
}

// driftSoon changes a file in the middle of a reconcile.
func (w *env) driftSoon(r *rand.Rand) {
	p, after := w.place(r), 1+r.IntN(10)
	w.logf("somebody will change %s at the agent's contact number %d from here", p, after)
	w.faults.scribbleIn = after
	w.faults.scribble = func() {
		w.disturb(p, r)
		w.agent.inbox = append(w.agent.inbox, func() {
			if w.agent.running && w.violation == nil {
				w.agent.drift <- struct{}{}
				w.agent.turnOnce()
			}
		})
	}
}

// conflict has somebody change one file again and again.
func (w *env) conflict(r *rand.Rand) {
	p := w.place(r)
	for range 4 + r.IntN(4) {
		w.disturb(p, r)
		w.notice()
		w.advance(time.Duration(r.IntN(20000)) * time.Millisecond)
	}
}
