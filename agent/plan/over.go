// SPDX-License-Identifier: Apache-2.0

package plan

import "slices"

// Over lays what an operator of the host asks for over what the object asks for: files that d names
// are d's, lists that d names are d's as a whole, and everything else stays as base wants it. What
// base merely remembers adds and takes nothing away, while the operator's own word counts as read.
func (d Desired) Over(base Desired, p Policy) Desired {
	paths := make(map[string]bool, len(d.Entries))
	for _, e := range d.Entries {
		if row, ok := p.Row(e.Row); ok {
			path, _ := row.Path(e.Name)
			paths[path] = true
		}
	}
	theirs := func(k Key) bool {
		row, ok := p.Row(k.Row)
		path, err := row.Path(k.Name)
		return ok && err == nil && !d.Listed[k.Row] && !paths[path]
	}
	out := d
	out.Object, out.Verified, out.Paused, out.Revoked = base.Object, true, base.Paused, base.Revoked
	out.Entries, out.Refused = slices.Clone(d.Entries), slices.Clone(d.Refused)
	out.Listed = make(map[RowID]bool)
	for id := range d.Listed {
		out.Listed[id] = true
	}
	for id := range base.Listed {
		out.Listed[id] = out.Listed[id] || base.Verified
	}
	for _, e := range base.Entries {
		if theirs(e.Key) {
			e.Carried = e.Carried || !base.Verified
			out.Entries = append(out.Entries, e)
		}
	}
	for _, r := range base.Refused {
		if !d.Listed[r.Row] && !slices.ContainsFunc(d.Entries, func(e Entry) bool { return e.Key == r.Key }) {
			out.Refused = append(out.Refused, r)
		}
	}
	out.Sort()
	return out
}
