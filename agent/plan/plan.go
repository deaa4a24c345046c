// SPDX-License-Identifier: Apache-2.0

// Package plan decides what must change on the host. It is pure: it sees what the ControllerConfig asks for
// (Desired), what the host has (Observed), what the agent remembers (Memory) and what the
// administrator allows (Policy), and returns a Plan, which is data: it can be printed and compared
// and has no way to express a command or a path that is not in the administrator's table.
//
// The package also owns the vocabulary that the other packages share: fields and keys of the host's
// file table, digests, observations, commits. It promises that planning again after
// the plan was carried out yields an empty plan, and that nothing is ever removed that the agent
// did not durably claim.
//
// It does not read files, clocks or the network.
package plan

import (
	"maps"
	"slices"

	"github.com/node-cert-agent/node-cert-agent/agent/pki"
)

// Plan is what must be done to the host's files. The zero value does nothing.
type Plan struct {
	Writes  []Write
	Removes []Removal
	// Refused is what was asked for and will not be done.
	Refused []Refusal
	// Retained is what the ControllerConfig no longer asks for and stays, with the reason.
	Retained []Refusal
	// Held is what will go, once its time has come.
	Held []Held
	// Question has to be answered before the trust source shrinks, or is nil.
	Question *Question
	// Entries are the contents that the managed files have once the plan is carried out: what the
	// object asks for, with what is held.
	Entries []Entry
	// Holds are all holds as they shall be remembered, or nil if they are as before.
	Holds map[HoldKey]Hold
	// Owned are all claims as they must be durable before the commit, or nil if ownership does not
	// change.
	Owned map[string]Claim
}

// Write publishes an entry.
type Write struct {
	Entry
	Path string
	// Before is the digest of what stood there, zero if nothing did.
	Before Digest
	Cause  cause
	// Added and Removed compare the certificates on disk with the entry's.
	Added, Removed []pki.Cert
}

// cause says why a file is written.
type cause string

// A file is missing, has other bytes than the ControllerConfig asks for, has the right bytes and another mode
// or owner, or may not be durable.
const (
	missing   cause = "missing"
	different cause = "different"
	wrongMode cause = "mode"
	undurable cause = "undurable"
)

// OnlyMode reports whether the bytes are right and stay.
func (w Write) OnlyMode() bool { return w.Cause == wrongMode }

// Removal takes a file away that we own and that nobody asks for.
type Removal struct {
	Key
	Path string
	// Digest is what stands there. It is zero if the file is gone already and that may not be durable yet.
	Digest Digest
}

// Input is everything that Compute may look at.
type Input struct {
	Desired  Desired
	Observed Observed
	Memory   Memory
	Policy   Policy
	Now      Moment
	// Known gives the certificates in contents seen before, so that unchanged files need not be
	// parsed again.
	Known map[Digest]pki.Content
	// Answers are those to questions of earlier plans, by pki.SetDigest of the certificates: empty
	// if the API server was verified, else why not.
	Answers map[pki.Fingerprint]string
	// Unsynced names files whose last commit failed: what can be read there may not survive a power
	// cut (fsync(2) reports an error once and then forgets it), so they are staged anew.
	Unsynced map[Key]bool
}

// Empty reports whether the plan changes nothing on the host.
func (p Plan) Empty() bool { return len(p.Writes) == 0 && len(p.Removes) == 0 }

// Shrinks reports whether the plan takes trust away.
func (p Plan) Shrinks() bool {
	return len(p.Removes) > 0 || slices.ContainsFunc(p.Writes, func(w Write) bool { return len(w.Removed) > 0 })
}

// Done gives the claims of owned once p was carried out.
func (p Plan) Done(owned map[string]Claim) map[string]Claim {
	owned = maps.Clone(owned)
	for _, w := range p.Writes {
		if cl, ok := owned[w.Path]; ok {
			owned[w.Path] = Claim{Key: cl.Key, Digests: []Digest{w.Digest}}
		}
	}
	for _, r := range p.Removes {
		delete(owned, r.Path)
	}
	return owned
}

// Undone gives the claims of owned once it is known that nothing of p was carried out; before are those that
// were there before p was claimed.
func (p Plan) Undone(owned, before map[string]Claim) map[string]Claim {
	owned = maps.Clone(owned)
	for _, w := range p.Writes {
		if cl, ok := before[w.Path]; ok {
			owned[w.Path] = cl
		} else {
			delete(owned, w.Path)
		}
	}
	return owned
}

// Commit is the request that carries the plan out.
func (p Plan) Commit() Commit {
	var c Commit
	for _, w := range p.Writes {
		c.Writes = append(c.Writes, CommitWrite{Key: w.Key, Data: w.Data})
	}
	for _, r := range p.Removes {
		c.Removals = append(c.Removals, CommitRemoval{Key: r.Key, Digest: r.Digest})
	}
	return c
}

// Fields are those of which a file changes, each once and in order.
func (p Plan) Fields() (ids []Field) {
	for _, w := range p.Writes {
		if !slices.Contains(ids, w.Field) {
			ids = append(ids, w.Field)
		}
	}
	for _, r := range p.Removes {
		if !slices.Contains(ids, r.Field) {
			ids = append(ids, r.Field)
		}
	}
	return ids
}

// Turns are the requests to the writer that carry the plan out, and between two turns somebody looks. One request is
// all or nothing up to the first rename. Only after failures is it one a field, so that a directory that cannot be
// written does not keep new trust from the others, nor their units from loading it. Each retry begins with another
// field: on a read-only file system the writer ends, and with it what comes right after, be it a look. So fields that
// are failing come last, in a turn of their own. Claims and exceptions stay behind: they were dealt with before.
func (p Plan) Turns(failures int, failing map[Field]bool) [][]Plan {
	if failures == 0 {
		return [][]Plan{{p}}
	}
	fields, turns := p.Fields(), make([][]Plan, 1)
	first := failures % max(1, len(fields))
	var last []Plan
	for _, id := range slices.Concat(fields[first:], fields[:first]) {
		part := Plan{
			Writes:  slices.DeleteFunc(slices.Clone(p.Writes), func(w Write) bool { return w.Field != id }),
			Removes: slices.DeleteFunc(slices.Clone(p.Removes), func(r Removal) bool { return r.Field != id }),
		}
		if failing[id] {
			last = append(last, part)
		} else {
			turns[0] = append(turns[0], part)
		}
	}
	if len(last) > 0 {
		turns = append(turns, last)
	}
	return turns
}

// Queries lists the files that a decision about d needs to know: every desired one, every one that we own and
// every field's that has one file, since who reads it does so whether or not anybody asks for it. Each is listed
// once and by the key that asks for it, as far as the host's table has a place for it: the administrator may
// have changed the table since, and the writer refuses a request with a key that it does not know. known
// gives the digest that each file is expected to have.
func Queries(d Desired, m Memory, p Policy, known map[Key]Digest) []Query {
	var keys []Key
	for _, r := range p.Files {
		keys = append(keys, Key{Field: r.Field})
	}
	for path, cl := range m.Owned {
		if at, ok := p.Path(cl.Key); ok && at == path {
			keys = append(keys, cl.Key)
		}
	}
	return queries(append(keys, keysOf(d.Entries)...), p, known)
}

// Queries is Queries for some entries alone.
func (p Policy) Queries(entries []Entry, known map[Key]Digest) []Query {
	return queries(keysOf(entries), p, known)
}

func keysOf(entries []Entry) []Key {
	keys := make([]Key, len(entries))
	for i, e := range entries {
		keys[i] = e.Key
	}
	return keys
}

// queries ask for the last key of each path.
func queries(keys []Key, p Policy, known map[Key]Digest) []Query {
	at := make(map[string]Key, len(keys))
	for _, k := range keys {
		if path, ok := p.Path(k); ok {
			at[path] = k
		}
	}
	out := make([]Query, 0, len(at))
	for _, k := range slices.SortedFunc(maps.Values(at), Key.Compare) {
		out = append(out, Query{Key: k, Known: known[k]})
	}
	return out
}

// Compute decides. Bytes are compared with bytes: no remembered version is a reason to skip, and an
// object that asks for what is there yields an empty plan.
func Compute(in Input) Plan {
	c := computation{in: in, owned: maps.Clone(in.Memory.Owned), holds: make(map[HoldKey]Hold),
		paths: make(map[string]bool, len(in.Desired.Entries))}
	maps.Copy(c.holds, in.Memory.Missing(in.Desired, in.Policy))
	c.plan.Refused = slices.Clone(in.Desired.Refused)
	for _, e := range in.Desired.Entries {
		c.entry(e)
	}
	for _, path := range slices.Sorted(maps.Keys(in.Memory.Owned)) {
		c.owner(path, in.Memory.Owned[path])
	}
	maps.DeleteFunc(c.holds, func(k HoldKey, _ Hold) bool { return c.forgotten(k.Path) })
	if !equalOwned(in.Memory.Owned, c.owned) {
		c.plan.Owned = c.owned
	}
	if !maps.Equal(in.Memory.Holds, c.holds) {
		c.plan.Holds = c.holds
	}
	return c.plan
}

type computation struct {
	in    Input
	plan  Plan
	paths map[string]bool // desired
	owned map[string]Claim
	holds map[HoldKey]Hold
	many  *bool // see mass
}

// entry decides about one desired file.
func (c *computation) entry(e Entry) {
	spec, ok := c.in.Policy.File(e.Field)
	if !ok {
		return
	}
	path, err := spec.PathOf(e.Name)
	if err != nil {
		c.refuse(e.Key, err.Error())
		return
	}
	c.asks(e, path)
	f := c.in.Observed[e.Key]
	if f.Reason != "" {
		c.refuse(e.Key, f.Reason)
		return
	}
	disk, seen := c.content(f)
	switch secret := spec.Field.Secret(); {
	case seen || f.Digest == e.Digest:
	case !secret:
		c.refuse(e.Key, "what is there has not been read yet")
		return
	case !c.in.Desired.Verified:
		c.keep(e.Key, "there is another one, which may be newer than what is remembered")
		return
	}
	w := Write{Entry: e, Path: path, Before: f.Digest}
	if f.Digest == e.Digest && len(c.in.Desired.Revoked) == 0 {
		if c.in.Desired.Verified && !e.Carried {
			c.unhold(path, nil)
		}
	} else {
		e = c.retain(spec, path, e, disk)
		w.Entry = e
		w.Added, w.Removed = pki.Diff(disk.Certs, e.Certs)
	}
	if len(w.Added) == 0 && !c.in.Desired.Verified && disk.Whole && len(e.Certs) > 0 {
		e.AsIs = f.Digest // what is merely remembered adds, and there is nothing to add
	}
	switch {
	case f.Kind == Absent:
		w.Cause = missing
	case f.Digest != e.OnDisk():
		w.Cause = different
	case !spec.accepts(f):
		w.Cause = wrongMode
	case c.in.Unsynced[e.Key] || c.pending(path, f):
		w.Cause = undurable
	default:
		c.plan.Entries = append(c.plan.Entries, e)
		return
	}
	c.write(spec, w, f)
}

// asks notes who asks for the file now, be it only in memory of what was asked for.
func (c *computation) asks(e Entry, path string) {
	c.paths[path] = true
	if old, ok := c.owned[path]; ok && old.Key != e.Key {
		old.Key = e.Key
		c.owned[path] = old
	}
	if e.Carried && !c.refusedAt(path) {
		c.keep(e.Key, silence(e.Field)+"; the last good content stays")
	}
}

// silence is why nothing asks for a field.
func silence(id Field) string {
	if id.FromConfigMap() {
		return "the ConfigMap has not been read, or does not have it"
	}
	return "it is empty or missing in the ControllerConfig"
}

const closedDirectory = "its directory belongs to somebody else, who keeps the writer out"

// write plans w, unless f lies where nothing can be written. What is closed to us a known writer
// brings up to date by itself.
func (c *computation) write(spec FileSpec, w Write, f File) {
	switch {
	case f.Closed && len(spec.Beside) > 0:
		c.keep(w.Key, closedDirectory+" and is left to it: "+spec.others())
	case f.Closed:
		c.refuse(w.Key, closedDirectory)
	default:
		c.plan.Entries = append(c.plan.Entries, w.Entry)
		c.plan.Writes = append(c.plan.Writes, w)
		c.claim(spec, w)
	}
}

// claim records, before the commit, that the new bytes will be ours. Only fields with an entry per file
// ever remove, so only they need a claim; and what is claimed already needs no other.
func (c *computation) claim(spec FileSpec, w Write) {
	if !spec.Many() {
		return
	}
	old, digests := c.in.Memory.Owned[w.Path], []Digest{w.Digest}
	if w.Before != w.Digest && slices.Contains(old.Digests, w.Before) {
		digests = append(digests, w.Before)
	}
	if !slices.ContainsFunc(digests, func(d Digest) bool { return !slices.Contains(old.Digests, d) }) {
		return
	}
	if c.owned == nil {
		c.owned = make(map[string]Claim)
	}
	c.owned[w.Path] = Claim{Key: w.Key, Digests: digests, Pending: true}
}

// pending tells whether it is not known who wrote the file: we were about to.
func (c *computation) pending(path string, f File) bool {
	cl := c.owned[path]
	return cl.Pending && slices.Contains(cl.Digests, f.Digest)
}

// owner decides about one file that we wrote once: does anybody still ask for it?
func (c *computation) owner(path string, cl Claim) {
	if c.paths[path] {
		return
	}
	k := cl.Key
	spec, _ := c.in.Policy.File(k.Field)
	if now, ok := c.in.Policy.Path(k); !ok || now != path {
		return // the administrator moved the field: what lies at the old place is his now
	}
	f := c.in.Observed[k]
	switch {
	case f.Kind == Absent && f.Reason != "":
		c.keep(k, f.Reason)
	case f.Kind == Absent && !(c.in.Desired.Verified && c.in.Desired.Listed[k.Field]):
	case f.Kind == Absent && (f.Closed || len(spec.Beside) > 0):
		delete(c.owned, path)
	case f.Kind == Absent:
		c.plan.Removes = append(c.plan.Removes, Removal{Key: k, Path: path})
	case !c.in.Desired.Listed[k.Field]:
		c.keep(k, "the list is empty, missing or invalid in the ControllerConfig")
	case c.refusedAt(path):
		c.keep(k, "what the ControllerConfig asks for in its place is refused")
	case !c.in.Desired.Verified:
		c.keep(k, "a removal needs a verified read of the ControllerConfig since this host booted")
	case len(spec.Beside) > 0:
		// It may have become theirs: with equal bytes nobody can tell who wrote last.
		c.keep(k, "whoever else writes these files removes it: "+spec.others())
	case f.Closed:
		c.keep(k, closedDirectory)
	case !slices.Contains(cl.Digests, f.Digest):
		c.keep(k, "somebody else changed it")
	default:
		if h, wait := c.waitFile(k, path, f); wait {
			c.plan.Held = append(c.plan.Held, h)
			return
		}
		c.plan.Removes = append(c.plan.Removes, Removal{Key: k, Path: path, Digest: f.Digest})
	}
}

// refusedAt tells whether the ControllerConfig may ask for something at path that is not fit: what is wrong in a list
// that cannot be read to its end may be any of its files.
func (c *computation) refusedAt(path string) bool {
	return slices.ContainsFunc(c.in.Desired.Refused, func(r Refusal) bool {
		spec, ok := c.in.Policy.File(r.Field)
		at, named := c.in.Policy.Path(r.Key)
		return ok && (named && at == path || spec.Many() && !c.in.Desired.Listed[r.Field] && spec.Has(path))
	})
}

// content gives the certificates in a file on disk; ok is false if its bytes have not been seen.
func (c *computation) content(f File) (found pki.Content, ok bool) {
	if f.Kind == Absent {
		return pki.Content{}, true
	}
	if known, ok := c.in.Known[f.Digest]; ok {
		return known, true
	}
	return pki.Read(f.Data), DigestOf(f.Data) == f.Digest
}

func (c *computation) refuse(k Key, reason string) {
	c.plan.Refused = append(c.plan.Refused, Refusal{Key: k, Reason: reason})
}

func (c *computation) keep(k Key, reason string) {
	c.plan.Retained = append(c.plan.Retained, Refusal{Key: k, Reason: reason})
}

func equalOwned(a, b map[string]Claim) bool {
	return maps.EqualFunc(a, b, func(x, y Claim) bool {
		return x.Key == y.Key && x.Pending == y.Pending && slices.Equal(x.Digests, y.Digests)
	})
}
