// SPDX-License-Identifier: Apache-2.0

package unitplan

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"maps"
	"slices"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/printable"
)

// Inputs are the files a unit reads, as one value and file by file.
type Inputs struct {
	// Digest is over all of them; zero if there are none.
	Digest plan.Digest
	// Fields are those that the unit reads and that the host was asked about. One without files is the zero fieldInputs.
	Fields map[plan.Field]fieldInputs
	// Doubt names one of the files that are not as they shall be, and why; empty if all are.
	Doubt string
	// written is over the path of each file and the time of its last change.
	written plan.Digest
}

// fieldInputs are one field's share of what a unit reads.
type fieldInputs struct {
	// Digest frames the path and the content digest of each file, so that no two sets collide.
	Digest plan.Digest
	// Changed is the latest change among the files.
	Changed time.Time
}

// Digests are those of the fields, to be remembered.
func (in Inputs) Digests() map[plan.Field]plan.Digest {
	d := make(map[plan.Field]plan.Digest, len(in.Fields))
	for id, f := range in.Fields {
		d[id] = f.Digest
	}
	return d
}

// changed is the latest change among all.
func (in Inputs) changed() (latest time.Time) {
	for _, f := range in.Fields {
		if f.Changed.After(latest) {
			latest = f.Changed
		}
	}
	return latest
}

// beyond is what was not among the fields that were loaded. There is no telling if one of these differs now,
// or if it is not known which they were.
func (in Inputs) beyond(loaded map[plan.Field]plan.Digest) (more Inputs, ok bool) {
	for id, d := range loaded {
		if in.Fields[id].Digest != d {
			return Inputs{}, false
		}
	}
	more.Fields = maps.Clone(in.Fields)
	maps.DeleteFunc(more.Fields, func(id plan.Field, _ fieldInputs) bool { _, was := loaded[id]; return was })
	return more, loaded != nil
}

// Untouched tells whether nothing was done to the files since they were like before: whoever read them in between
// has read this. It does not see a file that came and went. Which field asks for a file is all the same.
func (in Inputs) Untouched(before Inputs) bool {
	return in.Digest == before.Digest && in.written == before.written
}

// In tells whether s is the run of the unit that l is about.
func (l Loaded) In(s State) bool { return l.Boot == s.Boot && l.Invocation == s.Invocation }

// Outdated is l for a run that has not loaded what is there now. Whatever the clocks say later, only an action
// or another run does. With the zero state it is that of none.
func (l Loaded) Outdated(s State) Loaded {
	l.Unknown, l.Boot, l.Invocation = true, s.Boot, s.Invocation
	return l
}

// MadeOf gives the inputs of which the oneshot has made what is there now. Without memory of it that is in, unless
// that changed since the host was booted: what was made in an earlier boot is on disk, and who lost the memory
// of it must not restart a fleet.
func (l Loaded) MadeOf(known bool, in Inputs, booted time.Time) plan.Digest {
	if !known && !in.changed().After(booted) {
		return in.Digest
	}
	return l.Made
}

// Decision is what Decide says about one unit.
type Decision struct {
	Action Action
	// Why is a short fact for the record.
	Why string
	// Outdated is set if something new is to be remembered before an action is: see Loaded.Outdated.
	Outdated bool
}

// Action is the outcome of a Decision.
type Action string

// Nothing: the unit is not running, or has loaded what is on disk. Adopt: it provably read what is
// on disk when it started; remember that. Act: dispatch the allowlisted verb. Wait: there is no telling
// before its files are in order.
const (
	Nothing Action = "nothing"
	Adopt   Action = "adopt"
	Act     Action = "act"
	Wait    Action = "wait"
)

// clockSlack separates "started after the change" from "maybe at the same moment": change times
// come from the kernel's coarse clock, and clocks are corrected in small steps, most of all at boot.
const clockSlack = time.Second

// coarse is how far that clock may be behind: a tick of the slowest kernel, of 100 Hz (time(7)).
const coarse = 10 * time.Millisecond

// InputsOf collects the inputs of a unit from what is on disk now: every observed file of every field
// that names the unit in onChange. Files count by their paths, so that one which another field asks for now
// is the same input. Bundles count as sets of certificates, which are looked up in known: a consumer that
// loaded the same certificates in another order has nothing pending. What is irregular is an input, too, since a unit
// may read it, of which no more is known than that it is there. doubts are those of Doubts.
func InputsOf(unit string, p plan.Policy, o plan.Observed, known map[plan.Digest]pki.Content,
	doubts map[plan.Key]string) Inputs {
	fields, all := make(map[plan.Field]map[string]plan.File), make(map[string]plan.File)
	var doubt, reason string
	for k, f := range o {
		spec, ok := p.File(k.Field)
		if !ok || !slices.Contains(spec.OnChange, unit) {
			continue
		}
		if fields[k.Field] == nil {
			fields[k.Field] = make(map[string]plan.File)
		}
		path, err := spec.PathOf(k.Name)
		if err == nil && (f.Kind == plan.Regular || f.Kind == plan.Irregular) {
			fields[k.Field][path], all[path] = f, f
		}
		if why, ok := doubts[k]; ok && (doubt == "" || path < doubt) {
			doubt, reason = path, path+": "+why
		}
	}
	in := Inputs{Doubt: reason, Fields: make(map[plan.Field]fieldInputs, len(fields)), Digest: inputs(all, known).Digest,
		written: written(all)}
	for id, files := range fields {
		in.Fields[id] = inputs(files, known)
	}
	return in
}

// Doubts are the files of which nobody can say that they are as they shall be, each with the reason: they cannot
// be seen, nobody looked at them since their last write, that write failed, or somebody changed them and the repair was
// put off. To load one of these is worse than to go on with what is loaded: what is refused may keep a unit from
// starting. What stands at a path for which nothing is asked is doubtful only if it cannot be read; of what is asked
// for and is not there to be edited, there is nothing to wait for.
func Doubts(asked, planned []plan.Entry, o plan.Observed, unsynced map[plan.Key]bool) map[plan.Key]string {
	doubts := make(map[plan.Key]string)
	for _, e := range planned {
		switch {
		case unsynced[e.Key]:
			doubts[e.Key] = "its last write failed"
		case o[e.Key].Digest != e.OnDisk():
			doubts[e.Key] = "it is not yet as it shall be"
		}
	}
	for k, f := range o {
		wanted := func(e plan.Entry) bool { return e.Key == k }
		switch {
		case f.Kind == plan.Unreadable || f.Kind == plan.Irregular && slices.ContainsFunc(asked, wanted):
			doubts[k] = printable.Text(f.Reason)
		case f.Kind == plan.Regular && f.Changed.IsZero():
			doubts[k] = "it has not been looked at since it was written"
		}
	}
	return doubts
}

// inputs are some files by path.
func inputs(files map[string]plan.File, known map[plan.Digest]pki.Content) (r fieldInputs) {
	if len(files) == 0 {
		return fieldInputs{}
	}
	h := sha256.New()
	for _, path := range slices.Sorted(maps.Keys(files)) {
		f := files[path]
		frame(h, []byte(path))
		if c := known[f.Digest]; c.Whole {
			set := pki.SetDigest(c.Certs)
			frame(h, set[:])
		} else {
			frame(h, f.Digest[:])
		}
		if f.Changed.After(r.Changed) {
			r.Changed = f.Changed
		}
	}
	h.Sum(r.Digest[:0])
	return r
}

// written frames the path of each file and the time of its last change, in UTC.
func written(files map[string]plan.File) (d plan.Digest) {
	h := sha256.New()
	for _, path := range slices.Sorted(maps.Keys(files)) {
		frame(h, []byte(path))
		frame(h, []byte(files[path].Changed.UTC().Format(time.RFC3339Nano)))
	}
	h.Sum(d[:0])
	return d
}

// frame writes b with its length before it.
func frame(h hash.Hash, b []byte) {
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(len(b)))
	h.Write(n[:])
	h.Write(b)
}

// Decide derives from disk, memory and systemd whether a unit must load its inputs again.
// Nothing here remembers that a reload was asked for: killed at any point, the agent comes
// to the same answer. known is false when there is no memory of the unit at all.
//
// A unit that runs since before its inputs last changed, and is not known to have loaded them, has pending
// the action; so does every doubtful case, with one exception: without memory a restart needs a change
// after the start, or losing /var/lib would restart a fleet. At a first boot that may be a moment after.
//
// While one of its files is in doubt, none of this is asked.
//
// A oneshot of ours (verb restart) loads by running and is inactive afterwards, so that it is inactive
// says nothing. It has a run pending after each change, and one in each boot: a new image may have brought an
// older state of what it makes. A run that has not ended, or ended badly, is none.
func Decide(u Unit, s State, in Inputs, l Loaded, known bool) Decision {
	switch {
	case !s.Exists:
		return Decision{Action: Nothing, Why: "not installed, or masked"}
	case !s.Active && u.Verb != Restart:
		return Decision{Action: Nothing, Why: "not running: it reads its files when it starts"}
	}
	action, why := decide(u, s, in, l, known)
	_, newFields := in.beyond(l.Fields)
	// What was decided by times alone is not to be decided again by another clock.
	d := Decision{action, why, action == Act && (!l.In(s) || !l.Unknown && newFields)}
	if in.Doubt != "" {
		d.Action, d.Why = Wait, "waits for "+in.Doubt
	}
	return d
}

// decide is Decide for a unit that may have loaded something, and files that are in order.
func decide(u Unit, s State, in Inputs, l Loaded, known bool) (Action, string) {
	whole := !s.Failed && (u.Verb != Restart || !s.Busy)
	same := whole && known && !l.Unknown && l.In(s)
	switch {
	case same && l.Inputs == in.Digest:
		return Nothing, "has loaded what is on disk"
	case same:
		if more, ok := in.beyond(l.Fields); ok && startedAfter(s, more) {
			return Adopt, "started after the files of its new fields last changed"
		}
		return Act, "its files changed since it loaded them"
	case known && l.Unknown && l.In(s):
		return Act, "it is not known to have loaded what is on disk"
	case whole && startedAfter(s, in) && !(known && s.Busy): // it may read its files at any time until the job ends
		return Adopt, "started after its files last changed"
	case known && l.Unknown:
		return Act, "it is not known to have loaded what is on disk"
	case u.Verb == Restart && s.Failed:
		return Act, "its last run failed"
	case u.Verb == Restart:
		return Act, "it is not known to have run with what is on disk"
	case known:
		return Act, "restarted by itself near a change of its files"
	case u.Verb == TryRestart && !changedAfter(s, in):
		return Adopt, "no memory of it, and its files have not changed since it started"
	}
	return Act, "no memory of what it loaded"
}

func startedAfter(s State, in Inputs) bool {
	return !s.Since.IsZero() && s.Since.After(in.changed().Add(clockSlack))
}

// MayYetLoad tells whether the run began after the last change of in and has a job under way, so that it cannot be
// said of it yet whether it loads them.
func (s State) MayYetLoad(in Inputs) bool { return s.Busy && startedAfter(s, in) }

func changedAfter(s State, in Inputs) bool {
	return !s.Since.IsZero() && in.changed().Add(coarse).After(s.Since)
}
