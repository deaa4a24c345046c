// SPDX-License-Identifier: Apache-2.0

package files

import (
	"slices"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
)

// conflicts are the files that somebody else changed after we had left them as they shall be.
type conflicts struct {
	left  map[plan.Key]plan.Digest // how the last reconcile left each file
	files map[plan.Key]conflict
	next  time.Time // when the next repair is due that was put off; zero if none was
}

// deferRepairs is writes without the repairs that come too soon: see conflict. What the ControllerConfig asks for anew,
// and what it revokes, is never put off.
func (f *Files) deferRepairs(d plan.Desired, writes []plan.Write) []plan.Write {
	cs, now := &f.conflicts, f.Clock.Uptime()
	cs.next = time.Time{}
	open := make(map[plan.Key]bool)
	writes = slices.DeleteFunc(slices.Clone(writes), func(w plan.Write) bool {
		if !f.changedByOthers(d, w) {
			return false
		}
		open[w.Key] = true
		before := cs.files[w.Key]
		c := before.changed(now)
		cs.set(w.Key, c)
		spec, _ := f.Policy.File(w.Field)
		wait := c.repairAt(spec) - now
		if wait <= 0 {
			return false
		}
		if c.lasts() && !before.open {
			f.Trail.Record(audit.Contested(d.ControllerConfig, w, len(c.repairs), conflictMemory, conflictPause))
		}
		if at := f.Clock.Now().Add(wait); cs.next.IsZero() || at.Before(cs.next) {
			cs.next = at
		}
		return true
	})
	for k, c := range cs.files {
		if !open[k] {
			cs.set(k, c.settled(now))
		}
	}
	return writes
}

// changedByOthers tells whether w repairs what somebody else did: the ControllerConfig asks for what it asked for when
// we left the file in order, and the file is another now.
func (f *Files) changedByOthers(d plan.Desired, w plan.Write) bool {
	left, ok := f.conflicts.left[w.Key]
	if !ok || (w.Before == left && !w.OnlyMode()) {
		return false
	}
	then, asked := f.applied[w.Key]
	return asked && slices.ContainsFunc(d.Entries, func(e plan.Entry) bool { return e.Key == w.Key && e.Digest == then })
}

// leave notes that p was carried out, and with it every repair that it held.
func (f *Files) leave(p plan.Plan) {
	cs := &f.conflicts
	for _, w := range p.Writes {
		if c, ok := cs.files[w.Key]; ok && c.open {
			cs.set(w.Key, c.repaired(f.Clock.Uptime()))
		}
	}
	if cs.left == nil {
		cs.left = make(map[plan.Key]plan.Digest, len(p.Entries))
	}
	clear(cs.left)
	for _, e := range p.Entries {
		// Of a file whose repair was put off this is how it was left before.
		cs.left[e.Key] = e.OnDisk()
	}
}

// set remembers a file as long as there is something to remember of it.
func (cs *conflicts) set(k plan.Key, c conflict) {
	cs.files[k] = c
	if !c.open && len(c.repairs) == 0 {
		delete(cs.files, k)
	}
}

// contested are the files over which there is one, by key.
func (f *Files) contested() (out []report.Conflict) {
	for k, c := range f.conflicts.files {
		if !c.lasts() {
			continue
		}
		path, _ := f.Policy.Path(k)
		out = append(out, report.Conflict{Key: k, Path: path, Repairs: len(c.repairs)})
	}
	slices.SortFunc(out, func(a, b report.Conflict) int { return a.Key.Compare(b.Key) })
	return out
}
