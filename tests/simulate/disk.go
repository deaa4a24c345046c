// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// disk is the managed part of the file system, behind the writer.
type disk struct {
	*env
	files map[string]*file
	// odd are paths at which there is no file that can be read or written over.
	odd map[string]plan.FileKind
	// volatile is what a power cut brings back: what was at a path before changes that were not synced.
	volatile map[string]*file
	// seen is the version at each path that the agent of this life looked at last before it planned, or wrote.
	seen   map[string]*file
	looked int  // the turn of the last look
	plans  bool // it is one on which a plan is made: after a failure only the first of a turn is
	// failed are those of them whose sync failed in this life of the agent, so that it has to know.
	failed map[string]bool
	// taken are the paths where the last change was a removal by the agent.
	taken   map[string]bool
	changes int
	changed time.Duration // the last of these, in lived time
}

// file is one version of a file. It never changes.
type file struct {
	*content
	data     []byte
	mode     fs.FileMode
	uid, gid int
	changed  time.Time     // ctime, by the wall clock
	lived    time.Duration // when that was
	ours     bool          // the agent put these bytes here
}

func (f *file) String() string {
	if f == nil {
		return "no file"
	}
	return f.content.String()
}

func newDisk(w *env) disk {
	d := disk{env: w, files: make(map[string]*file), odd: make(map[string]plan.FileKind),
		volatile: make(map[string]*file), seen: make(map[string]*file), taken: make(map[string]bool),
		failed: make(map[string]bool)}
	if w.setting.ConfigMap {
		d.files[kubeconfig] = d.version(bundle([]int{0}), 0o600)
	}
	return d
}

// version is a new version of a file, written now. The kernel's clock for files is coarse.
func (d *disk) version(data []byte, mode fs.FileMode) *file {
	return &file{content: contentOf(data), data: data, mode: mode, changed: d.clock.wall().Truncate(4 * time.Millisecond),
		lived: d.clock.lived}
}

// set changes a path; nil removes the file. What somebody else does is durable, in the worst case for us.
func (d *disk) set(p string, f *file, synced bool) {
	if before := d.files[p]; !synced {
		if _, is := d.volatile[p]; !is {
			d.volatile[p] = before
		}
	} else {
		delete(d.volatile, p)
	}
	if d.files[p] = f; f == nil {
		delete(d.files, p)
	}
	delete(d.taken, p)
	d.changes++
	d.changed = d.clock.lived
	d.systemd.touched(p)
}

// even makes every file one that can be read again.
func (d *disk) even() {
	for _, p := range slices.Sorted(maps.Keys(d.odd)) {
		d.turned(p)
	}
	clear(d.odd)
}

// turned is for a path that became odd or is not any more. Of one that nobody asks for the agent cannot tell that
// from a change; nor of any, while a unit may be reading it, or before the agent has looked at a unit since that began.
func (d *disk) turned(p string) {
	_, asked := d.model.withoutOverride.asked.files[p]
	_, applied := d.model.withOverride.asked.files[p]
	for _, name := range unitNames {
		u := d.systemd.units[name]
		unseen := !d.agent.running || d.systemd.busy(name) != nil || u.started >= d.model.looked
		if d.model.concerns(d.env, name, p) && (!asked || !applied || unseen) {
			d.model.excuse(u, "a file became odd, or is not any more, which may be a change")
		}
	}
}

// cutPower loses some of what was not synced.
func (d *disk) cutPower(lose func() bool) {
	for _, p := range slices.Sorted(maps.Keys(d.volatile)) {
		if before := d.volatile[p]; lose() {
			if d.files[p] = before; before == nil {
				delete(d.files, p)
			}
			d.changes++
			d.model.forgetGone(p)
			d.logf("  %s is as before: %s", p, before)
		}
	}
	clear(d.volatile)
}

func (w *env) path(k plan.Key) (plan.FileSpec, string, error) {
	spec, ok := w.policy.File(k.Field)
	if !ok {
		return spec, "", fmt.Errorf("no field %s", k.Field)
	}
	p, err := spec.PathOf(k.Name)
	return spec, p, err
}

// Observe implements files.Writer.
func (d *disk) Observe(_ context.Context, queries []plan.Query) ([]plan.File, error) {
	before, after := d.meet(observing)
	if before != nil {
		return nil, before
	}
	d.plans = d.looked != d.agent.turns || d.agent.status.Error == ""
	d.looked = d.agent.turns
	out := make([]plan.File, len(queries))
	for i, q := range queries {
		spec, p, err := d.path(q.Key)
		if err != nil {
			return nil, err
		}
		out[i] = d.observe(spec, p, q.Known)
	}
	return out, after
}

func (d *disk) observe(spec plan.FileSpec, p string, known plan.Digest) plan.File {
	if kind, odd := d.odd[p]; odd {
		return plan.File{Kind: kind, Reason: "it is odd"}
	}
	f := d.files[p]
	if d.plans {
		d.seen[p] = f
	}
	switch {
	case f == nil && spec.Field.Edits():
		return plan.File{Kind: plan.Irregular, Reason: "it is missing, and not ours to make"}
	case f == nil:
		return plan.File{}
	}
	o := plan.File{Kind: plan.Regular, Digest: f.digest, Mode: f.mode, UID: f.uid, GID: f.gid, Changed: f.changed}
	if f.digest != known {
		o.Data = bytes.Clone(f.data)
	}
	return o
}

// Commit implements files.Writer, as package disk does it: all is staged before the first rename, and after a
// failure what was done is synced all the same.
func (d *disk) Commit(_ context.Context, c plan.Commit) error {
	d.counts.Commits++
	if err := d.stage(c.Writes); err != nil {
		return untouched{err}
	}
	err := d.carryOut(c)
	if errors.Is(err, errKilled) {
		return err
	}
	before, after := d.meet(syncing)
	if before == nil {
		clear(d.volatile)
		clear(d.failed)
	} else if !d.faults.dead {
		for _, x := range c.Writes { // a removal that is undone by a power cut harms nobody
			if _, p, err := d.path(x.Key); err == nil {
				_, d.failed[p] = d.volatile[p]
			}
		}
	}
	if err == nil {
		err = after
	}
	if err != nil {
		d.model.unfinished(c, d.env)
	}
	return d.killedWith(err)
}

// untouched is an error of a commit that changed nothing.
type untouched struct{ error }

// NothingChanged tells the agent so.
func (untouched) NothingChanged() bool { return true }

func (d *disk) stage(writes []plan.CommitWrite) error {
	taken := make(map[string]bool)
	for _, x := range writes {
		spec, p, err := d.path(x.Key)
		switch {
		case err != nil:
			d.violate("I1", "the writer is asked for %s: %v", x.Key, err)
		case taken[p]:
			d.violate("I1", "one commit writes %s twice", p)
		case len(x.Data) == 0:
			d.violate("I1", "a commit empties %s", p)
		default:
			_, err = spec.Entry(x.Name, x.Data, time.Time{})
			if err != nil {
				d.violate("I1", "a commit writes what is not valid to %s: %v", p, err)
			}
		}
		if err != nil {
			return err
		}
		taken[p] = true
		if _, err := d.meet(staging); err != nil {
			return err
		}
		if d.odd[p] != "" || spec.Field.Edits() && d.files[p] == nil {
			return fmt.Errorf("stage %s: there is no file to write over", p)
		}
	}
	return nil
}

func (d *disk) carryOut(c plan.Commit) error {
	for _, x := range c.Writes {
		before, after := d.meet(renaming)
		if before != nil {
			return before
		}
		d.write(x)
		if after != nil {
			return after
		}
	}
	for _, r := range c.Removals {
		_, p, err := d.path(r.Key)
		if err != nil {
			d.violate("I3", "the writer is asked to remove %s: %v", r.Key, err)
			return err
		}
		before, after := d.meet(removing)
		f := d.files[p]
		switch {
		case before != nil:
			return before
		case f == nil:
			continue
		case f.digest != r.Digest:
			return fmt.Errorf("remove %s: its bytes are not those that were to go", p)
		}
		d.model.removing(d.env, p, f)
		d.brings(p, nil)
		d.counts.Removals++
		d.logf("  removes %s, which had %s", p, f)
		d.set(p, nil, false)
		d.taken[p] = true
		if after != nil {
			return after
		}
	}
	return nil
}

// write renames one new version into place.
func (d *disk) write(x plan.CommitWrite) {
	spec, p, _ := d.path(x.Key)
	mode, uid, gid := spec.Mode, spec.UID, spec.GID
	old := d.files[p]
	if old != nil && spec.Field.Edits() {
		mode, uid, gid = old.mode, old.uid, old.gid
	}
	f := d.version(bytes.Clone(x.Data), mode)
	f.uid, f.gid, f.ours = uid, gid, true
	d.model.writing(d.env, spec, p, old, f)
	d.seen[p] = f
	d.brings(p, f)
	d.counts.Writes++
	d.logf("  writes %s: %s (it had %s)", p, f, old)
	d.set(p, f, false)
}

// brings excuses an action of who gets back what it has loaded. Somebody may have reloaded it with what was there, of
// which systemd keeps no trace; and as long as the agent has not looked what a job loaded, a write in between, be it of
// the same in another order, leaves no telling.
func (d *disk) brings(p string, f *file) {
	for _, name := range unitNames {
		u := d.systemd.units[name]
		if u.loaded != nil && idOf(u.loaded.files[p]) == idOf(f) && d.model.concerns(d.env, name, p) &&
			(name == reader || d.model.unsettled(d.env, name)) {
			d.model.excuse(u, "it gets back what it has loaded")
		}
	}
}

// Sweep implements files.Writer.
func (d *disk) Sweep(context.Context) ([]string, error) { return nil, nil }

// matches tells whether a path is one of the field's.
func matches(spec plan.FileSpec, p string) bool {
	before, after, many := strings.Cut(spec.Path, "{")
	if !many {
		return spec.Path == p
	}
	_, after, _ = strings.Cut(after, "}")
	name, ok := strings.CutSuffix(strings.TrimPrefix(p, before), after)
	if !ok {
		return false
	}
	q, err := spec.PathOf(name)
	return err == nil && q == p
}
