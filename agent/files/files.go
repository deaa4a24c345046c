// SPDX-License-Identifier: Apache-2.0

// Package files keeps the managed files as they are desired: it observes them through the writer, has package plan
// decide, claims, commits, and remembers what is on disk.
//
// The order that it promises: what is claimed is durable before the commit, the intent is recorded before the first
// rename, and units are told before and after. Of a file whose commit failed it never says that it is in
// place. It decides nothing but when a repair is too soon.
package files

import (
	"context"
	"path"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/clock"
	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/agent/state"
	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
)

// Writer is the process that changes files.
type Writer interface {
	// Observe tells what is at the files asked for, in the same order.
	Observe(context.Context, []plan.Query) ([]plan.File, error)
	// Commit publishes and removes files. After an error the disk has to be observed again, unless it has a
	// method NothingChanged() bool that answers true.
	Commit(context.Context, plan.Commit) error
	// Sweep removes what an interrupted commit left beside managed files.
	Sweep(context.Context) ([]string, error)
}

// Units are those that load managed files. They are told what a commit does to what they read.
type Units interface {
	// Disturb comes before: was and will tell what a unit reads before and after, and removed are the fields of which
	// the commit removes files.
	Disturb(ctx context.Context, was, will func(unit string) unitplan.Inputs, removed []plan.Field)
	// Changed comes after, when it is known what units read now.
	Changed(was, is func(unit string) unitplan.Inputs)
}

// Options are what Files need from outside.
type Options struct {
	Writer Writer
	Units  Units
	Memory *state.Memory
	Trail  audit.Recorder
	Clock  clock.Host
	Log    *zap.Logger
	Policy plan.Policy
	// LookAgain is set if there are units, which are judged by what is on disk after a commit.
	LookAgain bool
}

// Files own what is known of the managed files. One goroutine uses them.
type Files struct {
	Options
	disk
	notes
	conflicts conflicts
	former    map[string]plan.Claim    // claims before those of the present plan
	entries   []plan.Entry             // what the files have, by the last plan
	applied   map[plan.Key]plan.Digest // what the last reconcile that succeeded asked for; without its bytes
	synced    time.Time
	writes    uint64
}

// disk is what was seen of it, and what there is to doubt.
type disk struct {
	cache    cache
	observed plan.Observed       // nil if nobody knows
	blind    bool                // the last look failed, so that observed may be older than a commit
	unsynced map[plan.Key]bool   // what a failed commit may have left undurable
	failing  map[plan.Field]bool // fields of which the last commit failed
	unswept  bool                // a commit may have left something behind
}

// notes are what the last plan does not do.
type notes struct {
	refused  []plan.Refusal
	retained []plan.Refusal
	held     []plan.Held
	release  time.Time // when the next hold ends; zero if nothing is held for a time
}

// Written is a file that was published, and what it held before.
type Written struct {
	plan.Write
	Replaced []pki.Cert
}

// New knows nothing yet.
func New(o Options) *Files {
	return &Files{Options: o, conflicts: conflicts{files: make(map[plan.Key]conflict)},
		disk: disk{cache: newCache(), unsynced: make(map[plan.Key]bool), failing: make(map[plan.Field]bool)}}
}

// Timers are the end of a hold and a repair that was put off.
func (f *Files) Timers() []clock.Timer {
	return []clock.Timer{{What: "the end of a hold", At: f.release},
		{What: "a repair that was put off", At: f.conflicts.next}}
}

// Inputs tells what units read now, and which of it is in doubt; known is false while nobody can say what is on disk.
func (f *Files) Inputs(d plan.Desired) (inputs func(unit string) unitplan.Inputs, known bool) {
	if f.observed == nil {
		return nil, false
	}
	return f.inputs(f.observed, unitplan.Doubts(d.Entries, f.entries, f.observed, f.unsynced)), true
}

// Seen tells whether somebody could look at all that the unit reads since the last commit. observed is not nil.
func (f *Files) Seen(unit string) bool {
	failed := func(r plan.FileSpec) bool { return f.failing[r.Field] && slices.Contains(r.OnChange, unit) }
	if f.blind && slices.ContainsFunc(f.Policy.Files, failed) {
		return false
	}
	return f.inputs(f.observed, unitplan.Doubts(nil, nil, f.observed, nil))(unit).Doubt == ""
}

// InPlace are the entries of d that the files have, durably.
func (f *Files) InPlace(d plan.Desired) []plan.Entry {
	return slices.DeleteFunc(f.contents(d), func(e plan.Entry) bool { return !f.isInPlace(e) })
}

func (f *Files) isInPlace(e plan.Entry) bool {
	return f.cache.at[e.Key] == e.Digest && !f.unsynced[e.Key]
}

// contents are what the files shall have now: what is held included, as far as that is known, and under the
// digest of the file.
func (f *Files) contents(d plan.Desired) []plan.Entry {
	planned := make(map[plan.Key]plan.Entry, len(f.entries))
	for _, e := range f.entries {
		planned[e.Key] = e
	}
	out := slices.Clone(d.Entries)
	for i, e := range out {
		if p, ok := planned[e.Key]; ok {
			out[i] = p
			out[i].Digest = p.OnDisk()
		}
	}
	return out
}

// Content is what the one file of a field was last seen to hold.
func (f *Files) Content(id plan.Field) pki.Content {
	return f.cache.contents[f.cache.at[plan.Key{Field: id}]]
}

// Directories are those of all managed files: those of the table, those that entries and claimed files have for
// themselves, and those that links lead to.
func (f *Files) Directories(d *plan.Desired) map[string]bool {
	dirs := make(map[string]bool)
	for _, r := range f.Policy.Files {
		dirs[r.Directory()] = true
	}
	for k, file := range f.observed {
		if p, ok := f.Policy.Path(k); ok && file.Kind == plan.Regular {
			dirs[path.Dir(p)] = true
		}
		if file.Directory != "" {
			dirs[file.Directory] = true
		}
	}
	if d != nil {
		for _, e := range d.Entries {
			if p, ok := f.Policy.Path(e.Key); ok {
				dirs[path.Dir(p)] = true
			}
		}
	}
	return dirs
}

// Status fills in their part of what is shown. d is nil if nothing is desired yet.
func (f *Files) Status(s *report.Status, d *plan.Desired) {
	s.Synced, s.Refused, s.Retained, s.Writes = f.synced.UTC(), f.refused, f.retained, f.writes
	for _, spec := range f.Policy.Files {
		s.Fields = append(s.Fields, spec.Field)
	}
	if d != nil {
		for _, e := range f.contents(*d) {
			s.Files = append(s.Files, f.fileStatus(e))
		}
		for _, h := range f.held { // as long as nothing is desired, nobody ends a hold
			s.Held = append(s.Held, f.heldStatus(h))
		}
	}
	s.Conflicts = f.contested()
}

func (f *Files) heldStatus(h plan.Held) report.Held {
	out := report.Held{Key: h.Key, Reason: h.Reason}
	if h.Cert != nil {
		out.Fingerprint, out.Subject = h.Cert.Fingerprint.String(), h.Cert.Subject
	}
	if h.Left > 0 {
		out.Until = f.Clock.Now().Add(h.Left).UTC().Round(time.Minute)
	}
	return out
}

func (f *Files) fileStatus(e plan.Entry) report.File {
	out := report.File{Key: e.Key, Digest: e.Digest, State: report.Pending, Certificates: len(e.Certs),
		Expires: pki.EarliestExpiry(e.Certs).UTC(), Warnings: e.Warnings}
	for _, c := range e.Certs {
		out.Fingerprints = append(out.Fingerprints, c.Fingerprint.String())
	}
	out.Path, _ = f.Policy.Path(e.Key)
	if f.isInPlace(e) {
		out.State = report.InPlace
	}
	return out
}
