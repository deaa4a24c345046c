// SPDX-License-Identifier: Apache-2.0

package config

import (
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/liveness"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
	"github.com/node-cert-agent/node-cert-agent/packaging/profiles"
)

// value is what the key was set to last, or T's zero value. The base profile sets every key with a
// fixed name, so zero values remain only below units.
func value[T any](in inputs, key string) T {
	v, _ := in[key].value.(T)
	return v
}

// settings validates the merged inputs as a whole. Each value alone is valid already.
func (in inputs) settings() (Settings, []error) {
	s := Settings{
		Profile:  profiles.Base,
		NodeName: value[string](in, "node.name"),
		Object: Object{
			Group:    value[string](in, "object.group"),
			Version:  value[string](in, "object.version"),
			Resource: value[string](in, "object.resource"),
			Name:     value[string](in, "object.name"),
		},
		Actions: Actions{
			Coalesce: value[time.Duration](in, "actions.coalesce"),
			Spread:   value[time.Duration](in, "actions.spread"),
			Timeout:  value[time.Duration](in, "actions.timeout"),
		},
		ProbePatience:   value[time.Duration](in, "probe.patience"),
		Consume:         value[string](in, "bootstrap.consume"),
		KubeletIdentity: value[bool](in, "bootstrap.kubeletIdentity"),
		Pins:            value[[]string](in, "bootstrap.pins"),
		Identity: Identity{
			Lifetime:     value[time.Duration](in, "identity.lifetime"),
			Look:         value[time.Duration](in, "identity.look"),
			Glance:       value[time.Duration](in, "identity.glance"),
			PendingMax:   value[time.Duration](in, "identity.pendingMax"),
			Probe:        value[time.Duration](in, "identity.probe"),
			SuspectAfter: value[time.Duration](in, "identity.suspectAfter"),
			DeniedMin:    value[time.Duration](in, "identity.deniedMin"),
			DeniedMax:    value[time.Duration](in, "identity.deniedMax"),
		},
		Follow: Follow{
			Resync:       value[time.Duration](in, "follow.resync"),
			RetrySpread:  value[time.Duration](in, "follow.retrySpread"),
			RetryMax:     value[time.Duration](in, "follow.retryMax"),
			Silence:      value[time.Duration](in, "follow.silence"),
			WatchTimeout: value[time.Duration](in, "follow.watchTimeout"),
		},
	}
	hint := value[string](in, "bootstrap.followHint")
	s.FollowHint = hint == "always" || hint == "pinned" && len(s.Pins) > 0
	if name := value[string](in, "profile"); name != "" {
		s.Profile = name
	}
	var problems, more []error
	s.Policy.Units, problems = in.units()
	s.Policy.Rows, more = in.rows(s.Policy.Units)
	if slices.ContainsFunc(s.Policy.Rows, func(r plan.Row) bool { return r.ID.FromConfigMap() }) {
		s.ConfigMap = ConfigMap{value[string](in, "configMap.namespace"), value[string](in, "configMap.name"),
			value[string](in, "configMap.key")}
	}
	s.Policy.Trust = plan.Trust{Hold: value[time.Duration](in, "trust.holdRemovals")}
	if source, ok := s.Policy.Row(plan.RowID(value[string](in, "trust.source"))); ok && !source.Many() {
		s.Policy.Trust.Source = source.ID
	}
	s.beside(value[[]string](in, "coexist"))
	if s.Identity.DeniedMax < s.Identity.DeniedMin {
		more = append(more, in["identity.deniedMin"].problem("identity.deniedMin",
			"more than identity.deniedMax, which is %v", s.Identity.DeniedMax))
	}
	return s, append(problems, more...)
}

// beside makes room for other writers of the same files. They hold nothing back, so neither do we.
func (s *Settings) beside(names []string) {
	var writers []plan.Writer
	for _, n := range names {
		writers = append(writers, plan.Writer(n))
	}
	for i, r := range s.Policy.Rows {
		s.Policy.Rows[i] = r.With(writers)
	}
	s.Policy.Trust.Mirror = len(writers) > 0
}

// units is the allowlist, by name.
func (in inputs) units() (units []unitplan.Unit, problems []error) {
	for _, key := range slices.Sorted(maps.Keys(in)) {
		name, ok := strings.CutPrefix(key, "units.")
		if _, names := in[key].value.(mentioned); !ok || !names {
			continue
		}
		if on, ok := in[key+".enabled"]; ok && on.value == false {
			continue
		}
		u := unitplan.Unit{Name: name, Verb: value[unitplan.Verb](in, key+".verb"),
			AlsoAffects: value[[]string](in, key+".alsoAffects")}
		if err := checkVerb(name, u.Verb); err != nil {
			at, ok := in[key+".verb"]
			if !ok {
				at = in[key]
			}
			problems = append(problems, at.problem(key+".verb", "%v", err))
		}
		if slices.Contains(u.AlsoAffects, name) {
			problems = append(problems, in[key+".alsoAffects"].problem(key+".alsoAffects",
				"lists the unit itself; name only the others"))
		}
		units = append(units, u)
	}
	return units, problems
}

// rows is the file table, in the order of plan.RowIDs.
func (in inputs) rows(units []unitplan.Unit) (rows []plan.Row, problems []error) {
	for _, id := range plan.RowIDs() {
		key := "rows." + string(id)
		if !value[bool](in, key+".enabled") {
			continue
		}
		own := value[ids](in, key+".owner")
		row := plan.Row{
			ID:         id,
			File:       value[string](in, key+".file"),
			Mode:       value[fs.FileMode](in, key+".mode"),
			UID:        own.uid,
			GID:        own.gid,
			FollowLink: value[bool](in, key+".followLink"),
			OnChange:   value[[]string](in, key+".onChange"),
			Validate:   value[plan.Validation](in, key+".validate"),
			Verify:     value[[]liveness.Consumer](in, key+".verify"),
		}
		if why := unverifiable(row); why != "" && len(row.Verify) > 0 {
			problems = append(problems, in[key+".verify"].problem(key+".verify", "%s", why))
		}
		for _, other := range rows {
			if collide(row.File, other.File) && !shared(row, other) {
				problems = append(problems, in[key+".file"].problem(key+".file", "collides with row %s, whose file is %s (%s)",
					other.ID, other.File, in["rows."+string(other.ID)+".file"].where()))
			}
		}
		for _, name := range row.OnChange {
			if !slices.ContainsFunc(units, func(u unitplan.Unit) bool { return u.Name == name }) {
				problems = append(problems, in[key+".onChange"].problem(key+".onChange",
					"%s is not on the allowlist; to allow it add %s", name, toAllow(name)))
			}
		}
		rows = append(rows, row)
	}
	return rows, problems
}

// shared reports whether two rows may have one file: the two registry lists describe one directory.
func shared(a, b plan.Row) bool {
	return a.File == b.File && a.OwnDirectory() && b.OwnDirectory()
}

// unverifiable says why no server can show that it uses the row's file.
func unverifiable(r plan.Row) string {
	switch {
	case r.Many():
		return "the row has a file for each entry, and no server shows which of them it uses"
	case r.ID.Secret():
		return "the row's file holds no certificates"
	}
	return ""
}
