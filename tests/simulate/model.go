// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/state"
)

// model is what the walk knows of what it asked for, independently of the agent: it is against this that what
// the agent does is judged.
type model struct {
	logf func(format string, args ...any)
	// desired is what the agent of this life was given last, and read tells whether the ControllerConfig was in it.
	desired *plan.Desired
	read    bool
	// withoutOverride and withOverride are views without and with what the operator applied: whether that is in
	// force only the agent knows, so that a removal has to be right by one of them.
	withoutOverride, withOverride view
	overrides                     state.Overrides
	overridesFailed               bool
	confirmation                  *confirmation            // nil if removals are not confirmed
	confirmations                 map[string]*confirmation // by the override's ID
	// returns are asked for again, as of the next status.
	returns bool
	ever    map[string]bool       // paths that were asked for once
	owner   map[string]plan.Field // of each path: the field that asked for it last

	gone    map[string]map[int]string // trust that went for good, and why
	unsaved bool                      // /var/lib failed once: what was to be forgotten may come back
	proofs  map[string]bool           // sets of authorities that may be left in the trust source
	asking  map[string]bool           // whether the API server was verified with a set
	// the set with which it was not, the last time that what would be left was asked about
	left string

	// others counts what others did to files and units; seen is the count at the begin of the turn in which the
	// last status was published, and changes that of the disk then.
	others, begun, seen int
	changes             int
	looked              time.Duration // when that status was published
	right               map[string]verdict
	commit              int // the last in which a mass removal was looked for
	wrote               map[string]map[plan.Digest]bool
	newest              map[string]plan.Digest       // what the agent wrote there last, for as long as it is asked for
	repairs             map[repaired][]time.Duration // of files that somebody else changed, in the life repairsLife
	repairsLife         int
	reconfigured, lost  bool // the configuration changed once; /var/lib was lost once
}

// verdict is when a unit was last found right.
type verdict struct {
	changes, others int
	loaded          *reading
}

// view is what is asked for, and since when it is not.
type view struct {
	asked asked
	since map[string]map[int]time.Duration // in lived time, by path and authority
	file  map[string]time.Duration
}

// asked is what is wanted of each path.
type asked struct {
	files   map[string]want
	dropped func(path string) bool
}

// want is what one file shall have.
type want struct {
	holds  []int
	digest plan.Digest
	field  plan.Field
}

// confirmation is an operator's confirmation of removals: of what is missing when it is carried out. It is open until
// then, and at is when it was read, or that.
type confirmation struct {
	open bool
	at   time.Duration
}

func newModel(w *env) model {
	empty := func() view {
		return view{since: make(map[string]map[int]time.Duration), file: make(map[string]time.Duration),
			asked: asked{dropped: func(string) bool { return false }}}
	}
	return model{logf: w.logf, confirmations: make(map[string]*confirmation), withoutOverride: empty(),
		withOverride: empty(), ever: make(map[string]bool), owner: make(map[string]plan.Field), gone: make(map[string]map[int]string), proofs: make(map[string]bool),
		asking: make(map[string]bool), right: make(map[string]verdict), wrote: make(map[string]map[plan.Digest]bool),
		newest: make(map[string]plan.Digest)}
}

// begin is a new life of the agent.
func (m *model) begin(w *env) {
	m.desired, m.read, m.returns, m.seen = nil, false, false, -1
	clear(m.right)
	clear(m.proofs)
	clear(m.asking)
	m.left = ""
	m.withoutOverride.asked, m.withOverride.asked = nothingAsked(), nothingAsked()
	m.overrides, m.confirmation = state.Overrides{}, nil
	clear(w.disk.failed)
	clear(w.disk.seen)
	if w.faults.rate[saving] > 0 {
		m.excuseAll(w, "what the life before did could not be remembered")
	}
}

func nothingAsked() asked { return asked{dropped: func(string) bool { return false }} }

// end is the end of a life: what was under way then may have to be done again.
func (m *model) end(w *env) {
	if (w.faults.dead || w.agent.status.Error != "") && (w.setting.Hold == 0 || w.setting.Beside) {
		clear(m.gone) // what goes without a hold is not forgotten before, for the sake of latency
	}
	if w.memory.behind {
		w.systemd.forgive() // which actions failed could not be remembered
	}
	for _, u := range w.systemd.units {
		u.forgotten = u.forgotten || u.fresh && w.memory.behind
	}
	for _, name := range unitNames {
		u := w.systemd.units[name]
		j := w.systemd.busy(name)
		if j != nil && j.call != nil || m.unsettled(w, u.name) || m.confirmation != nil {
			m.excuse(u, "the agent ended while it had to do with the unit")
		}
	}
}

// unsettled tells whether the agent last called a unit anything but loaded.
func (m *model) unsettled(w *env, name string) bool {
	for _, s := range w.agent.status.Units {
		if s.Name == name {
			return s.State != "up to date"
		}
	}
	return true
}

func (m *model) excuse(u *unit, why string) {
	if u.excuse == "" {
		m.logf("  one action of %s may be needless: %s", u.name, why)
		u.excuse = why
	}
}

func (m *model) excuseAll(w *env, why string) {
	for _, name := range unitNames {
		m.excuse(w.systemd.units[name], why)
	}
}

// delivers notes what the agent is about to be given.
func (m *model) delivers(w *env, d *plan.Desired) {
	m.desired, m.read = d, m.read || !d.Partial
	m.weigh(w)
	m.returns = true
}

// readOverrides notes what the local override is, when the agent reads it.
func (m *model) readOverrides(w *env, overrides state.Overrides, err error) {
	before := m.overrides.Applied
	m.overrides, m.overridesFailed = overrides, err != nil
	if a := overrides.Applied; a == nil && before == nil || a != nil && before != nil && a.ID == before.ID {
		return
	}
	clear(m.gone)
	if m.confirmation = nil; overrides.Applied != nil && overrides.Applied.Now {
		if m.confirmation = m.confirmations[overrides.Applied.ID]; m.confirmation == nil {
			m.confirmation = &confirmation{open: true, at: w.clock.lived}
			m.confirmations[overrides.Applied.ID] = m.confirmation
		}
	}
	m.weigh(w)
	m.returns = true
}

// weigh finds what is asked for now, and notes since when things are not.
func (m *model) weigh(w *env) {
	without, with := m.withoutOverride.asked.files, m.withOverride.asked.files
	defer func() {
		m.meets(w, without, m.withoutOverride.asked.files)
		m.meets(w, with, m.withOverride.asked.files)
	}()
	m.withoutOverride.asked = w.askedBy(m.desired)
	m.withOverride.asked = w.over(m.withoutOverride.asked, m.overrides.Applied)
	for _, a := range []asked{m.withoutOverride.asked, m.withOverride.asked} {
		for p, x := range a.files {
			m.ever[p] = true
			if o, is := m.withoutOverride.asked.files[p]; is {
				m.owner[p] = o.field
			} else if m.owner[p] == "" { // what is applied may never be carried out
				m.owner[p] = x.field
			}
			for _, i := range x.holds {
				delete(m.gone[p], i)
			}
		}
	}
	m.withoutOverride.drop(w)
	m.withOverride.drop(w)
	asked := m.inForce(w)
	maps.DeleteFunc(m.newest, func(p string, _ plan.Digest) bool { _, is := asked[p]; return !is }) // next it is new
}

// meets excuses an action for a file that is not claimed, or for a field that is not configured any more, when somebody
// begins to ask for it or ends: before, or from then on, the agent does not look at it, and nobody can tell whether a
// unit has read it. Of one that is odd the agent waits for the end of that as long as it is asked for, and else it
// takes it for a change.
func (m *model) meets(w *env, before, now map[string]want) {
	for _, p := range slices.Sorted(maps.Keys(w.disk.files)) {
		_, was := before[p]
		if _, is := now[p]; was == is || w.followed(p) && w.disk.odd[p] == "" {
			continue
		}
		for _, name := range unitNames {
			if m.concerns(w, name, p) {
				m.excuse(w.systemd.units[name], "what it reads may count from now on, or not any more")
				w.systemd.units[name].tries = nil // to the agent these are other files
			}
		}
	}
}

// askedBy reads off what the projected object asks for. That the projection is right is for the tests of package
// watch; a field that is silent, or an entry that is refused, asks for nothing and drops nothing.
func (w *env) askedBy(d *plan.Desired) asked {
	if d == nil {
		return nothingAsked()
	}
	a := asked{files: make(map[string]want, len(d.Entries))}
	for _, e := range d.Entries {
		if _, p, err := w.path(e.Key); err == nil {
			x := want{digest: e.Digest, field: e.Field}
			for _, c := range e.Certs {
				x.holds = append(x.holds, indexOf(c.Fingerprint))
			}
			a.files[p] = x
		}
	}
	refused := make(map[string]bool)
	for _, r := range d.Refused {
		if _, p, err := w.path(r.Key); err == nil {
			refused[p] = true
		}
	}
	a.dropped = func(p string) bool {
		_, asked := a.files[p]
		owner := w.model.owner[p]
		if c, claimed := w.claims()[p]; claimed {
			owner = c.Field
		}
		spec, ok := w.policy.File(owner)
		return !asked && !refused[p] && ok && spec.Many() && d.Listed[owner] && matches(spec, p)
	}
	return a
}

// over lays what the operator applied over it.
func (w *env) over(base asked, applied *state.Applied) asked {
	if applied == nil {
		return base
	}
	a := asked{files: maps.Clone(base.files)}
	if a.files == nil {
		a.files = make(map[string]want)
	}
	listed := func(p string) bool {
		return slices.ContainsFunc(applied.Lists, func(id plan.Field) bool {
			spec, ok := w.policy.File(id)
			return ok && matches(spec, p)
		})
	}
	maps.DeleteFunc(a.files, func(p string, _ want) bool { return listed(p) })
	for _, f := range applied.Files {
		if spec, p, err := w.path(f.Key); err == nil {
			if e, err := spec.Entry(f.Name, f.Data, time.Time{}); err == nil {
				a.files[p] = want{holds: contentOf(e.Data).holds, digest: e.Digest, field: f.Field}
			}
		}
	}
	a.dropped = func(p string) bool {
		_, asked := a.files[p]
		return !asked && (listed(p) || base.dropped(p))
	}
	return a
}

// drop notes since when something is not asked for any more.
func (v *view) drop(w *env) {
	v.each(w, func(p string, x want, asked bool) {
		if !asked {
			if _, known := v.file[p]; !known {
				v.file[p] = w.clock.lived
			}
		}
		for i := range authorities {
			if asked && slices.Contains(x.holds, i) {
				continue
			}
			if v.since[p] == nil {
				v.since[p] = make(map[int]time.Duration)
			}
			if _, known := v.since[p][i]; !known {
				v.since[p][i] = w.clock.lived
			}
		}
	})
}

// come forgets since when things were missing that are asked for again.
func (v *view) come(w *env) {
	v.each(w, func(p string, x want, asked bool) {
		if !asked || w.disk.odd[p] != "" {
			return
		}
		delete(v.file, p)
		for _, i := range x.holds {
			delete(v.since[p], i)
		}
	})
}

// each goes through the paths of which something is known: asked for, or dropped.
func (v *view) each(w *env, do func(p string, x want, asked bool)) {
	for p, x := range v.asked.files {
		do(p, x, true)
	}
	paths := maps.Clone(w.disk.files)
	for p := range v.since {
		paths[p] = nil
	}
	for p := range paths {
		if v.asked.dropped(p) {
			do(p, want{}, false)
		}
	}
}

// published is called with each status.
func (m *model) published(w *env) {
	if t := w.agent.status.Error; strings.Contains(t, "defect of this program") {
		w.violate("defect", "the agent says: %s", t)
	}
	m.seen, m.changes = m.begun, w.disk.changes
	if w.agent.status.Error == "" { // else it may not have come to the units
		m.looked = w.clock.lived
	}
	if m.returns && w.faults.rate[saving] == 0 && w.agent.status.Error == "" {
		m.withoutOverride.come(w)
		m.withOverride.come(w)
		m.returns = false
	}
	m.withoutOverride.drop(w) // whose a file is may be another matter now
	m.withOverride.drop(w)
	if m.confirmation != nil && m.confirmation.open && w.agent.status.Error == "" {
		m.confirmation.open, m.confirmation.at = false, w.clock.lived // it was for all that was missing until then
	}
}

// forgetGone is for a file that somebody else changed.
func (m *model) forgetGone(p string) { delete(m.gone, p) }

// proved notes what the agent learned of the trust source. When what would be left does not verify the API server, it
// asks about what is there next: if that does not verify it either, it is not what it is verified with.
func (m *model) proved(with []int, c *call) {
	key, first := letters(slices.Sorted(slices.Values(with))), m.left == ""
	verified := c.err == nil && c.why == ""
	m.asking[key] = verified
	switch {
	case verified:
		m.proofs[key] = true
	case c.err == nil && !first:
		m.proofs[m.left] = true
	}
	if m.left = ""; first && c.why != "" {
		m.left = key
	}
}

// concerns tells whether a unit reads a path.
func (m *model) concerns(w *env, name, p string) bool {
	return slices.ContainsFunc(w.policy.Files, func(r plan.FileSpec) bool {
		return slices.Contains(r.OnChange, name) && matches(r, p)
	})
}

// inputs is what a unit reads of some files, as one string. Of fields with many files, those that nobody ever
// asked for and that are not ours do not count: nobody looks at them.
func (m *model) inputs(w *env, name string, files map[string]*file) string {
	var b strings.Builder
	for _, p := range slices.Sorted(maps.Keys(files)) {
		if f := files[p]; (m.ever[p] || f.ours || w.single(p)) && m.concerns(w, name, p) {
			b.WriteString(p + "=" + f.id + " ")
		}
	}
	return b.String()
}

// visible is what the agent can see of that now: of what is irregular nothing but that it is there.
func (m *model) visible(w *env, name string) string {
	files := maps.Clone(w.disk.files)
	for p, kind := range w.disk.odd {
		if delete(files, p); kind == plan.Irregular {
			files[p] = &file{content: &content{id: string(kind)}}
		}
	}
	return m.inputs(w, name, files)
}

// single tells whether a path is the one file of a field.
func (w *env) single(p string) bool {
	return slices.ContainsFunc(w.policy.Files, func(r plan.FileSpec) bool { return r.Path == p })
}

// specOf is a field that a path is of.
func (w *env) specOf(p string) (spec plan.FileSpec) {
	for _, r := range w.policy.Files {
		if matches(r, p) {
			return r
		}
	}
	return spec
}
