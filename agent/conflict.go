// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"slices"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
)

// quarrels are the files that somebody else changed after we had left them as they shall be.
type quarrels struct {
	left  map[plan.Key]plan.Digest // how the last pass left each file
	files map[plan.Key]plan.Quarrel
	next  time.Time // when the next repair is due that was put off; zero if none was
}

// calm takes the repairs out of p that come too soon: see plan.Quarrel. What the object asks for anew
// is never put off.
func (l *loop) calm(p plan.Plan) plan.Plan {
	q, now := &l.quarrels, l.Clock.Uptime()
	q.next = time.Time{}
	open := make(map[plan.Key]bool)
	p.Writes = slices.DeleteFunc(slices.Clone(p.Writes), func(w plan.Write) bool {
		if !l.foreign(w) {
			return false
		}
		open[w.Key] = true
		before := q.files[w.Key]
		f := before.Changed(now)
		q.set(w.Key, f)
		row, _ := l.Policy.Row(w.Row)
		wait := f.Answer(row) - now
		if wait <= 0 {
			return false
		}
		if f.Conflict() && !before.Open {
			l.Trail.Record(audit.Contested(p.Object, w, len(f.Repairs)))
		}
		if at := l.Clock.Now().Add(wait); q.next.IsZero() || at.Before(q.next) {
			q.next = at
		}
		return true
	})
	for k, f := range q.files {
		if f = f.Settled(now); !open[k] {
			q.set(k, f)
		}
	}
	return p
}

// foreign tells whether w repairs what somebody else did: the object asks for what it asked for when
// we left the file in order, and the file is another now.
func (l *loop) foreign(w plan.Write) bool {
	left, ok := l.quarrels.left[w.Key]
	if !ok || (w.Before == left && w.Cause != plan.WrongMode) {
		return false
	}
	then, asked := l.done[w.Key]
	return asked && slices.ContainsFunc(l.desired.Current().Entries, func(e plan.Entry) bool { return e.Key == w.Key && e.Digest == then })
}

// leave notes that p was carried out, and with it every repair that it held.
func (l *loop) leave(p plan.Plan) {
	q := &l.quarrels
	for _, w := range p.Writes {
		if f, ok := q.files[w.Key]; ok && f.Open {
			q.set(w.Key, f.Repaired(l.Clock.Uptime()))
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

// stood notes, after a commit that changed nothing, that a file which it would have written first is as it was.
func (q *quarrels) stood(p plan.Plan) {
	for _, w := range p.Writes {
		if _, ok := q.left[w.Key]; !ok && q.left != nil {
			q.left[w.Key] = w.Before
		}
	}
}

// set remembers a file as long as there is something to remember of it.
func (q *quarrels) set(k plan.Key, f plan.Quarrel) {
	if q.files == nil {
		q.files = make(map[plan.Key]plan.Quarrel)
	}
	if q.files[k] = f; !f.Open && len(f.Repairs) == 0 {
		delete(q.files, k)
	}
}

// conflicts are the files over which there is one, by key.
func (l *loop) conflicts() (out []report.Conflict) {
	for k, f := range l.quarrels.files {
		if !f.Conflict() {
			continue
		}
		c := report.Conflict{Key: k, Repairs: len(f.Repairs)}
		if row, ok := l.Policy.Row(k.Row); ok {
			c.Path, _ = row.Path(k.Name)
		}
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b report.Conflict) int { return plan.CompareKeys(a.Key, b.Key) })
	return out
}
