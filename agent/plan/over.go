// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"slices"
)

// Over lays what an operator of the host asks for over what the ControllerConfig asks for: files that d names
// are d's, lists that d names are d's as a whole, and everything else stays as base wants it. What
// base merely remembers adds and takes nothing away, while the operator's own word counts as read.
func (d Desired) Over(base Desired, p Policy) Desired {
	paths := d.paths(p)
	theirs := func(k Key) bool {
		path, ok := p.Path(k)
		return ok && !d.Listed[k.Field] && !paths[path]
	}
	out := d
	out.ControllerConfig, out.Verified, out.Paused, out.Revoked = base.ControllerConfig, true, base.Paused, base.Revoked
	out.Entries, out.Refused = slices.Clone(d.Entries), slices.Clone(d.Refused)
	out.Listed = make(map[Field]bool)
	maps.Copy(out.Listed, d.Listed)
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
		if path, ok := p.Path(r.Key); !d.Listed[r.Field] && !(ok && paths[path]) {
			out.Refused = append(out.Refused, r)
		}
	}
	out.Sort()
	return out
}
