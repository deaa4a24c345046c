// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/printable"
)

// Projector turns objects into what the host shall have. Its result depends on the arguments alone;
// it remembers what it validated last, because parsing costs 20 µs a certificate and most fields of
// most objects are old. The zero value is ready. It is not safe for concurrent use.
type Projector struct {
	cache map[cacheKey]cached
}

// cacheKey is what a result depends on beside content and clock: fields differ in strictness and in whether
// the bytes themselves are written, and two entries of one field are judged apart.
type cacheKey struct {
	plan.Key
	strict      bool
	asPublished bool
}

// cached is the result for one piece of content. It is valid while no certificate's expiry lies between the clock
// then and the clock now.
type cached struct {
	data        []byte // as published
	entry       plan.Entry
	reason      string
	from, until time.Time
}

// Project validates the ControllerConfig's fields and lays them out on the host's files, in the order of plan.Fields;
// fields are those that the host's configuration leaves on. now judges expiry and nothing else, and expiry
// only warns unless the file is strict. The result's Verified is left false: whether o was read over
// a verified connection is the caller's knowledge.
//
// A field that is missing, null or empty asks for nothing. Whatever cannot be used is refused under
// its own key, and a list in which an entry's name cannot be used is not Listed: as long as part of
// a list is unreadable, what seems to be missing from it may not be.
func (p *Projector) Project(o Object, specs []plan.FileSpec, now time.Time) plan.Desired {
	q := projection{
		desired: plan.Desired{ControllerConfig: plan.ControllerConfig{UID: o.UID, ResourceVersion: o.ResourceVersion},
			Listed: make(map[plan.Field]bool)},
		old: p.cache, cache: make(map[cacheKey]cached, len(p.cache)), paths: make(map[string]plan.Key), now: now,
	}
	q.annotated(o.Annotations)
	// Backwards, because where two fields name one file the later field wins.
	for _, id := range slices.Backward(plan.Fields()) {
		i := slices.IndexFunc(specs, func(r plan.FileSpec) bool { return r.Field == id })
		f, ok := o.Fields[id]
		if i < 0 || !ok {
			continue
		}
		switch {
		case f.Reason != "":
			q.refuse(plan.Key{Field: id}, f.Reason)
		case id.List():
			q.list(specs[i], f.Entries)
		case len(f.Data) > 0:
			q.bundle(specs[i], f.Data)
		}
	}
	p.cache = q.cache
	return q.sorted()
}

// projection is the work on one object.
type projection struct {
	desired    plan.Desired
	old, cache map[cacheKey]cached
	paths      map[string]plan.Key // who has a path, refused or not
	now        time.Time
}

func (q *projection) refuse(k plan.Key, reason string) {
	q.desired.Refused = append(q.desired.Refused, plan.Refusal{Key: k, Reason: reason})
}

// bundle lays out a field that is one bundle: as one file, or one file for each certificate.
func (q *projection) bundle(spec plan.FileSpec, data []byte) {
	key := plan.Key{Field: spec.Field}
	if !spec.ByFingerprint() {
		q.layOut(spec, key, data)
		return
	}
	whole, reason := q.validate(spec, key, data)
	if reason != "" {
		q.refuse(key, reason)
		return
	}
	q.desired.Listed[spec.Field] = true
	for _, c := range whole.Certs {
		q.layOut(spec, plan.Key{Field: spec.Field, Name: c.Fingerprint.String()}, c.PEM())
	}
}

// RegistryName turns the `file` key of a registry entry into the directory name under certs.d:
// every ".." is a ":", because a ConfigMap key cannot hold one. Source: openshift
// machine-config-operator pkg/daemon/certificate_writer.go. The result still has to be fit for
// plan.FileSpec.PathOf.
func RegistryName(file string) string { return strings.ReplaceAll(file, "..", ":") }

// list lays out the entries of a registry list.
func (q *projection) list(spec plan.FileSpec, entries []ListEntry) {
	if len(entries) == 0 {
		return
	}
	q.desired.Listed[spec.Field] = true
	named := make(map[string][]ListEntry, len(entries))
	for i, e := range entries {
		name := RegistryName(e.File)
		if e.File == "" {
			q.refuseName(plan.Key{Field: spec.Field}, fmt.Sprintf("entry %d %s", i+1, e.Reason))
		} else if _, err := spec.PathOf(name); err != nil {
			q.refuseName(plan.Key{Field: spec.Field, Name: printable.Text(name)}, printable.Text(err.Error()))
		} else {
			named[name] = append(named[name], e)
		}
	}
	for name, es := range named {
		key := plan.Key{Field: spec.Field, Name: name}
		switch e := es[0]; {
		case slices.ContainsFunc(es, func(o ListEntry) bool { return o.Reason != e.Reason || !bytes.Equal(o.Data, e.Data) }):
			q.claim(spec, key)
			q.refuse(key, fmt.Sprintf("the list names this registry %d times with different content", len(es)))
		case e.Reason != "":
			q.claim(spec, key)
			q.refuse(key, e.Reason)
		case len(e.Data) > 0:
			q.layOut(spec, key, e.Data)
		default:
			// The entry is there and asks for nothing: its last good file stays.
			q.claim(spec, key)
			q.refuse(key, "is empty")
		}
	}
}

// refuseName refuses an entry whose file cannot be derived from its name. It may be one that was there before under a
// good name, so nothing may count as missing from this list.
func (q *projection) refuseName(k plan.Key, reason string) {
	q.desired.Listed[k.Field] = false
	q.refuse(k, reason)
}

// claim takes the path of k, or tells who has it already.
func (q *projection) claim(spec plan.FileSpec, k plan.Key) (path string, owner plan.Key, err error) {
	if path, err = spec.PathOf(k.Name); err != nil {
		return "", plan.Key{}, err
	}
	if o, taken := q.paths[path]; taken {
		return path, o, nil
	}
	q.paths[path] = k
	return path, k, nil
}

// layOut asks for data at the path of k, if data is valid and no later field has the path.
func (q *projection) layOut(spec plan.FileSpec, k plan.Key, data []byte) {
	path, owner, err := q.claim(spec, k)
	switch {
	case err != nil:
		q.refuse(k, printable.Text(err.Error()))
		return
	case owner != k:
		if slices.ContainsFunc(q.desired.Refused, func(r plan.Refusal) bool { return r.Key == owner }) {
			// Falling back to the other list would replace the last good file by other trust because
			// of an error.
			q.refuse(k, fmt.Sprintf("%s has the same file %s, and is refused", owner.Field, path))
		}
		return
	}
	e, reason := q.validate(spec, k, data)
	if reason != "" {
		q.refuse(k, reason)
		return
	}
	q.desired.Entries = append(q.desired.Entries, e)
}

// validate judges data for one key, or gives the cached result. reason is empty if data is good.
func (q *projection) validate(spec plan.FileSpec, k plan.Key, data []byte) (e plan.Entry, reason string) {
	mk := cacheKey{Key: k, strict: spec.Strict, asPublished: spec.AsPublished()}
	m, ok := q.old[mk]
	if !ok || !bytes.Equal(m.data, data) || q.now.Before(m.from) || (!m.until.IsZero() && q.now.After(m.until)) {
		m = q.judge(spec, k, data)
	}
	q.cache[mk] = m
	return m.entry, m.reason
}

// judge validates. A result changes by itself only when a certificate expires.
func (q *projection) judge(spec plan.FileSpec, k plan.Key, data []byte) cached {
	m := cached{data: data, from: q.now}
	e, err := spec.Entry(k.Name, data, q.now)
	if err != nil {
		m.reason = err.Error()
		return m
	}
	m.entry = e
	for _, c := range e.Certs {
		if !c.NotAfter.Before(q.now) && (m.until.IsZero() || c.NotAfter.Before(m.until)) {
			m.until = c.NotAfter
		}
	}
	return m
}

// sorted puts entries and refusals in order, and forgets fields not listed.
func (q *projection) sorted() plan.Desired {
	q.desired.Sort()
	maps.DeleteFunc(q.desired.Listed, func(_ plan.Field, listed bool) bool { return !listed })
	return q.desired
}

// The ControllerConfig's annotations that mean something.
const (
	// RevokeAnnotation names certificates that go at once where the ControllerConfig does not publish them any
	// more: "sha256:" and 64 hexadecimal digits over the DER encoding, separated by commas.
	RevokeAnnotation = annotationPrefix + "revoke"
	// PausedAnnotation stops removals and unit actions for as long as it is there; its value is the
	// reason that is shown.
	PausedAnnotation = annotationPrefix + "paused"
)

// annotated reads the annotations. What cannot be read is refused, and the rest counts.
func (q *projection) annotated(all map[string]string) {
	if reason, ok := all[PausedAnnotation]; ok {
		if q.desired.Paused = printable.Text(strings.TrimSpace(reason)); q.desired.Paused == "" {
			q.desired.Paused = "no reason given"
		}
	}
	for item := range strings.SplitSeq(all[RevokeAnnotation], ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		digits, ok := strings.CutPrefix(item, "sha256:")
		raw, err := hex.DecodeString(digits)
		if !ok || err != nil || len(raw) != len(pki.Fingerprint{}) {
			q.refuse(plan.Key{Field: RevokeAnnotation}, "an item is not sha256: and 64 hexadecimal digits")
			continue
		}
		if fp := pki.Fingerprint(raw); !slices.Contains(q.desired.Revoked, fp) {
			q.desired.Revoked = append(q.desired.Revoked, fp)
		}
	}
}
