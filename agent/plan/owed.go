// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"maps"
	"slices"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/pki"
)

// Inputs are the files a unit reads, as one value and row by row.
type Inputs struct {
	// Digest is over all of them; zero if there are none.
	Digest Digest
	// Rows are those that the unit reads and that the host was asked about. One without files is the zero RowInputs.
	Rows map[RowID]RowInputs
}

// RowInputs are one row's share of what a unit reads.
type RowInputs struct {
	// Digest frames the path and the content digest of each file, so that no two sets collide.
	Digest Digest
	// Changed is the latest change among the files.
	Changed time.Time
}

// Digests are those of the rows, to be remembered.
func (in Inputs) Digests() map[RowID]Digest {
	d := make(map[RowID]Digest, len(in.Rows))
	for id, row := range in.Rows {
		d[id] = row.Digest
	}
	return d
}

// changed is the latest change among all.
func (in Inputs) changed() (latest time.Time) {
	for _, row := range in.Rows {
		if row.Changed.After(latest) {
			latest = row.Changed
		}
	}
	return latest
}

// beyond is what was not among the rows that were loaded. There is no telling if one of these differs now,
// or if it is not known which they were.
func (in Inputs) beyond(loaded map[RowID]Digest) (more Inputs, ok bool) {
	for id, d := range loaded {
		if in.Rows[id].Digest != d {
			return Inputs{}, false
		}
	}
	more.Rows = maps.Clone(in.Rows)
	maps.DeleteFunc(more.Rows, func(id RowID, _ RowInputs) bool { _, was := loaded[id]; return was })
	return more, loaded != nil
}

// Decision is what Owed says about one unit.
type Decision struct {
	Action Action
	// Why is a short fact for the record.
	Why string
}

// Action is the outcome of a Decision.
type Action string

// Nothing: the unit is not running, or has loaded what is on disk. Adopt: it provably read what is
// on disk when it started; remember that. Act: dispatch the allowlisted verb.
const (
	Nothing Action = "nothing"
	Adopt   Action = "adopt"
	Act     Action = "act"
)

// clockSlack separates "started after the change" from "maybe at the same moment": change times
// come from the kernel's coarse clock, and clocks are corrected in small steps, most of all at boot.
const clockSlack = time.Second

// coarse is how far that clock may be behind: a tick of the slowest kernel, of 100 Hz (time(7)).
const coarse = 10 * time.Millisecond

// InputsOf collects the inputs of a unit from what is on disk now: every observed file of every row
// that names the unit in onChange. Files count by their paths, so that one which another row asks for now
// is the same input. Bundles count as sets of certificates, which are looked up in known: a consumer that
// loaded the same certificates in another order owes nothing.
func InputsOf(unit string, p Policy, o Observed, known map[Digest]pki.Content) Inputs {
	rows, all := make(map[RowID]map[string]File), make(map[string]File)
	for k, f := range o {
		row, ok := p.Row(k.Row)
		if !ok || !slices.Contains(row.OnChange, unit) {
			continue
		}
		if rows[k.Row] == nil {
			rows[k.Row] = make(map[string]File)
		}
		if path, err := row.Path(k.Name); err == nil && f.Kind != Absent {
			rows[k.Row][path], all[path] = f, f
		}
	}
	in := Inputs{Rows: make(map[RowID]RowInputs, len(rows)), Digest: inputs(all, known).Digest}
	for id, files := range rows {
		in.Rows[id] = inputs(files, known)
	}
	return in
}

// inputs are some files by path.
func inputs(files map[string]File, known map[Digest]pki.Content) (r RowInputs) {
	if len(files) == 0 {
		return RowInputs{}
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

// frame writes b with its length before it.
func frame(h hash.Hash, b []byte) {
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(len(b)))
	h.Write(n[:])
	h.Write(b)
}

// Owed derives from disk, memory and systemd whether a unit must load its inputs again.
// Nothing here remembers that a reload was asked for: killed at any point, the agent comes
// to the same answer. known is false when there is no memory of the unit at all.
//
// A unit that runs since before its inputs last changed, and is not known to have loaded them, owes
// the action; so does every doubtful case, with one exception: without memory a restart needs a change
// after the start, or losing /var/lib would restart a fleet. At a first boot that may be a moment after.
//
// A oneshot of ours (verb restart) loads by running and is inactive afterwards, so that it is inactive
// says nothing. It owes a run after each change, and one in each boot: a new image may have brought an
// older state of what it makes. A run that has not ended, or ended badly, is none.
func Owed(u Unit, s UnitState, in Inputs, l Loaded, known bool) Decision {
	switch {
	case !s.Exists:
		return Decision{Nothing, "not installed, or masked"}
	case !s.Active && u.Verb != Restart:
		return Decision{Nothing, "not running: it reads its files when it starts"}
	}
	whole := !s.Failed && (u.Verb != Restart || !s.Busy)
	same := whole && known && !l.Unknown && l.Boot == s.Boot && l.Invocation == s.Invocation
	switch {
	case same && l.Inputs == in.Digest:
		return Decision{Nothing, "has loaded what is on disk"}
	case same:
		if more, ok := in.beyond(l.Rows); ok && startedAfter(s, more) {
			return Decision{Adopt, "started after the files of its new rows last changed"}
		}
		return Decision{Act, "its files changed since it loaded them"}
	case whole && startedAfter(s, in):
		return Decision{Adopt, "started after its files last changed"}
	case known && l.Unknown:
		return Decision{Act, "whether an earlier action reached it is unknown"}
	case u.Verb == Restart && s.Failed:
		return Decision{Act, "its last run failed"}
	case u.Verb == Restart:
		return Decision{Act, "it is not known to have run with what is on disk"}
	case known:
		return Decision{Act, "restarted by itself near a change of its files"}
	case u.Verb == TryRestart && !changedAfter(s, in):
		return Decision{Adopt, "no memory of it, and its files have not changed since it started"}
	}
	return Decision{Act, "no memory of what it loaded"}
}

func startedAfter(s UnitState, in Inputs) bool {
	return !s.Since.IsZero() && s.Since.After(in.changed().Add(clockSlack))
}

func changedAfter(s UnitState, in Inputs) bool {
	return !s.Since.IsZero() && in.changed().Add(coarse).After(s.Since)
}
