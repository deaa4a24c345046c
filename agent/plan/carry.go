// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"slices"
)

// Carry is d together with what before asked for and d no longer says anything usable about: single
// files whose field is empty, missing or refused, lists that are, and refused entries of lists. The
// last good content stays in force for them (law 4 of the design), which means that drift of it is
// repaired and that it survives a restart. An entry that left a list that is otherwise fine is not
// carried: that is how a registry is removed.
func (d Desired) Carry(before Desired, p Policy) Desired {
	paths := make(map[string]bool, len(d.Entries))
	rows := make(map[RowID]bool)
	for _, e := range d.Entries {
		rows[e.Row] = true
		if row, ok := p.Row(e.Row); ok {
			path, _ := row.Path(e.Name)
			paths[path] = true
		}
	}
	refused := make(map[Key]bool, len(d.Refused))
	for _, r := range d.Refused {
		refused[r.Key] = true
	}
	entries := slices.Clone(d.Entries)
	for _, e := range before.Entries {
		row, ok := p.Row(e.Row)
		if !ok || row.Many() && d.Listed[e.Row] && !refused[e.Key] || !row.Many() && rows[e.Row] {
			continue
		}
		if path, err := row.Path(e.Name); err != nil || paths[path] {
			continue
		}
		e.Carried = true
		entries = append(entries, e)
	}
	order := RowIDs()
	slices.SortStableFunc(entries, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.Row), slices.Index(order, b.Row)), cmp.Compare(a.Name, b.Name))
	})
	d.Entries = entries
	return d
}
