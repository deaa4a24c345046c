// SPDX-License-Identifier: Apache-2.0

package units

import (
	"context"
	"maps"
	"slices"

	"github.com/godbus/dbus/v5"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// restarts are the dependencies along which systemd carries a restart to other units. It follows
// PropagatesStopTo with 257 and not with 252 (seen).
var restarts = []string{"RequiredBy", "RequisiteOf", "BoundBy", "ConsistsOf", "PropagatesStopTo"}

// propagates are the dependencies that matter for a verb. Source: "Mapping of unit properties to their
// inverses" in systemd.unit(5), and what a transaction does with them (PROPAGATE_RESTART and
// PROPAGATES_RELOAD_TO in unit-dependency-atom.c of systemd). What a start pulls in (Requires=, Wants=)
// is not among them: it starts what is missing and disturbs nothing that runs.
var propagates = map[plan.Verb][]string{
	plan.Reload:     {"PropagatesReloadTo"},
	plan.TryRestart: restarts,
	plan.Restart:    restarts,
}

// Affected names the other units that systemd would act on along with the verb, directly or through one
// another, sorted. It is as of now: systemd knows a dependency on a unit only while it has loaded the
// one that depends. Units that do not run at the moment are among them. The error is an *Error.
func (c *Conn) Affected(ctx context.Context, u plan.Unit) ([]string, error) {
	bus, err := c.connect(ctx)
	if err != nil {
		return nil, failure(u.Name, "", err)
	}
	seen := map[string]bool{u.Name: true}
	for next := []string{u.Name}; len(next) > 0; next = next[1:] {
		props, err := properties(ctx, bus, next[0])
		if err != nil {
			return nil, failure(next[0], "", err)
		}
		for _, name := range dependents(props, u.Verb) {
			if !seen[name] {
				seen[name] = true
				next = append(next, name)
			}
		}
	}
	delete(seen, u.Name)
	return slices.Sorted(maps.Keys(seen)), nil
}

func dependents(props map[string]dbus.Variant, v plan.Verb) (names []string) {
	for _, property := range propagates[v] {
		list, _ := props[property].Value().([]string)
		names = append(names, list...)
	}
	return names
}
