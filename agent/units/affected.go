// SPDX-License-Identifier: Apache-2.0

package units

import (
	"context"

	"github.com/godbus/dbus/v5"

	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
)

// restarts are the dependencies along which systemd carries a restart to other units. It follows
// PropagatesStopTo with 257 and not with 252 (seen).
var restarts = []string{"RequiredBy", "RequisiteOf", "BoundBy", "ConsistsOf", "PropagatesStopTo"}

// propagates are the dependencies that matter for a verb. Source: "Mapping of unit properties to their
// inverses" in systemd.unit(5), and what a transaction does with them (PROPAGATE_RESTART and
// PROPAGATES_RELOAD_TO in unit-dependency-atom.c of systemd). What a start pulls in (Requires=, Wants=)
// is not among them: it starts what is missing and disturbs nothing that runs.
var propagates = map[unitplan.Verb][]string{
	unitplan.Reload:     {"PropagatesReloadTo"},
	unitplan.TryRestart: restarts,
	unitplan.Restart:    restarts,
}

// closure finds the other units that systemd would act on along with the verb, directly or through one
// another, and their properties. The error is a *reloader.Error.
func closure(ctx context.Context, bus *dbus.Conn, u unitplan.Unit,
	props map[string]dbus.Variant) (map[string]map[string]dbus.Variant, error) {
	seen := map[string]map[string]dbus.Variant{u.Name: props}
	for next := []string{u.Name}; len(next) > 0; next = next[1:] {
		for _, name := range dependents(seen[next[0]], u.Verb) {
			if seen[name] != nil {
				continue
			}
			var err error
			if seen[name], err = properties(ctx, bus, name); err != nil {
				return nil, failure(name, "", err)
			}
			next = append(next, name)
		}
	}
	delete(seen, u.Name)
	return seen, nil
}

func dependents(props map[string]dbus.Variant, v unitplan.Verb) (names []string) {
	for _, property := range propagates[v] {
		list, _ := props[property].Value().([]string)
		names = append(names, list...)
	}
	return names
}
