// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"

	"github.com/node-cert-agent/node-cert-agent/agent/pki"
)

// Carry is d together with what before asked for and d no longer says anything usable about: single
// files whose field is empty, missing or refused, lists that are, and refused entries of lists. The
// last good content stays in force for them (docs/rationale.md), which means that drift of it is
// repaired and that it survives a restart. An entry that left a list that is otherwise fine is not
// carried: that is how a registry is removed. The ControllerConfig of a partial d is before's, for the records.
func (d Desired) Carry(before Desired, p Policy) Desired {
	paths, fields := d.paths(p), make(map[Field]bool)
	for _, e := range d.Entries {
		fields[e.Field] = true
	}
	refused := make(map[string]bool, len(d.Refused))
	for _, r := range d.Refused {
		if path, ok := p.Path(r.Key); ok {
			refused[path] = true
		}
	}
	entries := slices.Clone(d.Entries)
	for _, e := range before.Entries {
		spec, _ := p.File(e.Field)
		path, ok := p.Path(e.Key)
		if !ok || paths[path] || spec.Many() && d.Listed[e.Field] && !refused[path] || !spec.Many() && fields[e.Field] {
			continue
		}
		e.Carried = true
		entries = append(entries, e)
	}
	d.Entries, d.Refused = entries, slices.Clone(d.Refused)
	d.Sort()
	if d.Partial {
		d.ControllerConfig = before.ControllerConfig
	}
	return d
}

// Bereft is d after entries were put in place: what is carried has lost for good what was revoked there, or it
// would be back as soon as nobody revokes it any more.
func (d Desired) Bereft(entries []Entry) Desired {
	d.Entries = slices.Clone(d.Entries)
	for i, e := range d.Entries {
		at := slices.IndexFunc(entries, func(x Entry) bool { return x.Key == e.Key })
		if !e.Carried || at < 0 || !entries[at].Carried {
			continue
		}
		if _, lost := pki.Diff(e.Certs, entries[at].Certs); len(lost) > 0 {
			d.Entries[i] = entries[at]
		}
	}
	return d
}

// paths are where the entries go.
func (d Desired) paths(p Policy) map[string]bool {
	paths := make(map[string]bool, len(d.Entries))
	for _, e := range d.Entries {
		if path, ok := p.Path(e.Key); ok {
			paths[path] = true
		}
	}
	return paths
}

// With is d and what the second source asks for. The two feed different fields. What else the ControllerConfig
// says, d says.
func (d Desired) With(second Desired) Desired {
	d.Verified = d.Verified && second.Verified
	d.Entries = slices.Concat(d.Entries, second.Entries)
	d.Refused = slices.Concat(d.Refused, second.Refused)
	listed := make(map[Field]bool)
	maps.Copy(listed, d.Listed)
	maps.Copy(listed, second.Listed)
	d.Listed = listed
	d.Sort()
	return d
}

// Sort puts entries and refusals in field order and then by name.
func (d *Desired) Sort() {
	order := Fields()
	compare := func(a, b Key) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.Field), slices.Index(order, b.Field)), cmp.Compare(a.Name, b.Name))
	}
	slices.SortStableFunc(d.Entries, func(a, b Entry) int { return compare(a.Key, b.Key) })
	slices.SortStableFunc(d.Refused, func(a, b Refusal) int { return compare(a.Key, b.Key) })
}

// Projection identifies what the ControllerConfig asks for: keys and contents, and nothing of where they were
// read. The second source is no part of it: it comes and goes on its own.
func (d Desired) Projection() Digest {
	h := sha256.New()
	for _, e := range d.Entries {
		if e.Field.FromConfigMap() {
			continue
		}
		fmt.Fprintf(h, "%q %s\n", e.Key.String(), e.Digest)
	}
	return Digest(h.Sum(nil))
}
