// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/pki"
)

// Inputs are the files a unit reads, as one value.
type Inputs struct {
	// Digest frames every input's key and content digest, so that no two sets collide.
	Digest Digest
	// Changed is the latest change among them.
	Changed time.Time
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
// come from the kernel's coarse clock, and a unit may read its files late in its start.
const clockSlack = time.Second

// InputsOf collects the inputs of a unit from what is on disk now: every observed file of every row
// that names the unit in onChange. Bundles count as sets of certificates, which are looked up in known:
// a consumer that loaded the same certificates in another order owes nothing.
func InputsOf(unit string, p Policy, o Observed, known map[Digest]pki.Content) Inputs {
	h := sha256.New()
	var in Inputs
	frame := func(s string) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(s)))
		h.Write(n[:])
		h.Write([]byte(s))
	}
	for _, k := range slices.SortedFunc(maps.Keys(o), CompareKeys) {
		row, ok := p.Row(k.Row)
		if !ok || !slices.Contains(row.OnChange, unit) || o[k].Kind == Absent {
			continue
		}
		f := o[k]
		frame(k.String())
		if c := known[f.Digest]; c.Whole {
			set := pki.SetDigest(c.Certs)
			frame(string(set[:]))
		} else {
			frame(string(f.Digest[:]))
		}
		if f.Changed.After(in.Changed) {
			in.Changed = f.Changed
		}
	}
	h.Sum(in.Digest[:0])
	return in
}

// Owed derives from disk, memory and systemd whether a unit must load its inputs again.
// Nothing here remembers that a reload was asked for: killed at any point, the agent comes
// to the same answer. known is false when there is no memory of the unit at all.
//
// A unit that runs since before its inputs last changed, and is not known to have loaded them, owes
// the action; so does every doubtful case, with one exception: without memory a restart needs proof
// that something changed, or losing /var/lib would restart a fleet.
//
// A oneshot of ours (verb restart) loads by running and is inactive afterwards, so that it is inactive
// says nothing. It owes a run after each change, and one in each boot: a new image may have brought an
// older state of what it makes.
func Owed(u Unit, s UnitState, in Inputs, l Loaded, known bool) Decision {
	switch {
	case !s.Exists:
		return Decision{Nothing, "not installed, or masked"}
	case !s.Active && u.Verb != Restart:
		return Decision{Nothing, "not running: it reads its files when it starts"}
	}
	same := known && !l.Unknown && l.Boot == s.Boot && l.Invocation == s.Invocation && !s.Failed
	switch {
	case same && l.Inputs == in.Digest:
		return Decision{Nothing, "has loaded what is on disk"}
	case same:
		return Decision{Act, "its files changed since it loaded them"}
	case !s.Failed && startedAfter(s, in):
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
		return Decision{Adopt, "no memory of it, and no proof that its files changed since it started"}
	}
	return Decision{Act, "no memory of what it loaded"}
}

func startedAfter(s UnitState, in Inputs) bool {
	return !s.Since.IsZero() && s.Since.After(in.Changed.Add(clockSlack))
}

func changedAfter(s UnitState, in Inputs) bool {
	return !s.Since.IsZero() && in.Changed.After(s.Since.Add(clockSlack))
}
