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
	files map[plan.Key]plan.Quarrel
	next  time.Time // when the next repair is due that was put off; zero if none was
}

// deferRepairs takes the repairs out of p that come too soon: see plan.Quarrel. What the ControllerConfig asks for anew
// is never put off.
func (f *Files) deferRepairs(d plan.Desired, p plan.Plan) plan.Plan {
	q, now := &f.conflicts, f.Clock.Uptime()
	q.next = time.Time{}
	open := make(map[plan.Key]bool)
	p.Writes = slices.DeleteFunc(slices.Clone(p.Writes), func(w plan.Write) bool {
		if !f.changedByOthers(d, w) {
			return false
		}
		open[w.Key] = true
		before := q.files[w.Key]
		quarrel := before.Changed(now)
		q.set(w.Key, quarrel)
		spec, _ := f.Policy.File(w.Field)
		wait := quarrel.Answer(spec) - now
		if wait <= 0 {
			return false
		}
		if quarrel.Conflict() && !before.Open {
			f.Trail.Record(audit.Contested(p.ControllerConfig, w, len(quarrel.Repairs)))
		}
		if at := f.Clock.Now().Add(wait); q.next.IsZero() || at.Before(q.next) {
			q.next = at
		}
		return true
	})
	for k, quarrel := range q.files {
		if !open[k] {
			q.set(k, quarrel.Settled(now))
		}
	}
	return p
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
	q := &f.conflicts
	for _, w := range p.Writes {
		if quarrel, ok := q.files[w.Key]; ok && quarrel.Open {
			q.set(w.Key, quarrel.Repaired(f.Clock.Uptime()))
		}
	}
	if q.left == nil {
		q.left = make(map[plan.Key]plan.Digest, len(p.Entries))
	}
	clear(q.left)
	for _, e := range p.Entries {
		// Of a file whose repair was put off this is how it was left before.
		q.left[e.Key] = e.OnDisk()
	}
}

// set remembers a file as long as there is something to remember of it.
func (q *conflicts) set(k plan.Key, f plan.Quarrel) {
	if q.files == nil {
		q.files = make(map[plan.Key]plan.Quarrel)
	}
	q.files[k] = f
	if !f.Open && len(f.Repairs) == 0 {
		delete(q.files, k)
	}
}

// contested are the files over which there is one, by key.
func (f *Files) contested() (out []report.Conflict) {
	for k, quarrel := range f.conflicts.files {
		if !quarrel.Conflict() {
			continue
		}
		c := report.Conflict{Key: k, Repairs: len(quarrel.Repairs)}
		if spec, ok := f.Policy.File(k.Field); ok {
			c.Path, _ = spec.PathOf(k.Name)
		}
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b report.Conflict) int { return a.Key.Compare(b.Key) })
	return out
}
