// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
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
		Profile:  cmp.Or(value[string](in, "profile"), profiles.Base),
		NodeName: value[string](in, "node.name"),
		ControllerConfig: ControllerConfig{
			Group:    value[string](in, "controllerConfig.group"),
			Version:  value[string](in, "controllerConfig.version"),
			Resource: value[string](in, "controllerConfig.resource"),
			Name:     value[string](in, "controllerConfig.name"),
		},
		Actions: actions{
			BatchWindow:     value[time.Duration](in, "actions.batchWindow"),
			RandomizedDelay: value[time.Duration](in, "actions.randomizedDelay"),
			Timeout:         value[time.Duration](in, "actions.timeout"),
		},
		ProbeTimeout:    value[time.Duration](in, "probe.timeout"),
		Consume:         value[string](in, "bootstrap.consume"),
		KubeletIdentity: value[bool](in, "bootstrap.kubeletIdentity"),
		Pins:            value[[]string](in, "bootstrap.pins"),
		Identity: identity{
			Lifetime:         value[time.Duration](in, "identity.lifetime"),
			PollInterval:     value[time.Duration](in, "bootstrap.pollInterval"),
			IdlePollInterval: value[time.Duration](in, "bootstrap.idlePollInterval"),
			ApprovalPollMax:  value[time.Duration](in, "identity.approvalPollMax"),
			CheckInterval:    value[time.Duration](in, "identity.checkInterval"),
			SuspectAfter:     value[time.Duration](in, "identity.suspectAfter"),
			DeniedMin:        value[time.Duration](in, "identity.deniedMin"),
			DeniedMax:        value[time.Duration](in, "identity.deniedMax"),
		},
		Renewal: in.renewal(),
		Resync:  value[time.Duration](in, "resync"),
		Watch: watch{
			RetryJitter: value[time.Duration](in, "watch.retryJitter"),
			RetryMax:    value[time.Duration](in, "watch.retryMax"),
			IdleTimeout: value[time.Duration](in, "watch.idleTimeout"),
			Timeout:     value[time.Duration](in, "watch.timeout"),
		},
	}
	hint := value[string](in, "bootstrap.followHint")
	s.FollowHint = hint == "always" || hint == "pinned" && len(s.Pins) > 0
	var problems, more []error
	s.Policy.Units, problems = in.units()
	s.Policy.Files, more = in.files(s.Policy.Units)
	if slices.ContainsFunc(s.Policy.Files, func(r plan.FileSpec) bool { return r.Field.FromConfigMap() }) {
		s.ConfigMap = ConfigMap{value[string](in, "configMap.namespace"), value[string](in, "configMap.name"),
			value[string](in, "configMap.key")}
	}
	s.Policy.Trust = plan.Trust{Hold: value[time.Duration](in, "trust.holdRemovals")}
	if source, ok := s.Policy.File(plan.Field(value[string](in, "trust.source"))); ok && !source.Many() {
		s.Policy.Trust.Source = source.Field
	}
	s.beside(value[[]string](in, "coexist"))
	if s.Identity.DeniedMax < s.Identity.DeniedMin {
		more = append(more, in["identity.deniedMin"].problem("identity.deniedMin",
			"more than identity.deniedMax, which is %v", s.Identity.DeniedMax))
	}
	return s, append(problems, more...)
}

func (in inputs) renewal() renewal {
	return renewal{
		Mode:          value[string](in, "renewal.mode"),
		Lifetime:      value[time.Duration](in, "renewal.lifetime"),
		ReuseKey:      value[string](in, "renewal.key") == "reuse",
		Restart:       value[string](in, "renewal.restart") == "static-pods",
		ThroughEtcd:   value[bool](in, "renewal.throughEtcd"),
		DegradedBelow: value[time.Duration](in, "renewal.degradedBelow"),
		Timeout:       value[time.Duration](in, "renewal.timeout"),
		RenewBefore:   value[time.Duration](in, "renewal.renewBefore"),
		WarnBefore:    value[time.Duration](in, "renewal.warnBefore"),
		Interval:      value[time.Duration](in, "renewal.interval"),
	}
}

// beside makes room for other writers of the same files. They hold nothing back, so neither do we.
func (s *Settings) beside(names []string) {
	var writers []plan.Writer
	for _, n := range names {
		writers = append(writers, plan.Writer(n))
	}
	for i, r := range s.Policy.Files {
		s.Policy.Files[i] = r.With(writers)
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

// files is the file table, in the order of plan.Fields.
func (in inputs) files(units []unitplan.Unit) (specs []plan.FileSpec, problems []error) {
	for _, id := range plan.Fields() {
		key := "files." + string(id)
		if !value[bool](in, key+".enabled") {
			continue
		}
		own := value[ids](in, key+".owner")
		spec := plan.FileSpec{
			Field:      id,
			Path:       value[string](in, key+".path"),
			Mode:       value[fs.FileMode](in, key+".mode"),
			UID:        own.uid,
			GID:        own.gid,
			FollowLink: value[bool](in, key+".followLink"),
			OnChange:   value[[]string](in, key+".onChange"),
			Strict:     value[string](in, key+".validate") == "strict",
			Verify:     value[[]liveness.Consumer](in, key+".verify"),
		}
		if why := unverifiable(spec); why != "" && len(spec.Verify) > 0 {
			problems = append(problems, in[key+".verify"].problem(key+".verify", "%s", why))
		}
		for _, other := range specs {
			if collide(spec.Path, other.Path) && !shared(spec, other) {
				problems = append(problems, in[key+".path"].problem(key+".path", "collides with %s, whose path is %s (%s)",
					other.Field, other.Path, in["files."+string(other.Field)+".path"].where()))
			}
		}
		for _, name := range spec.OnChange {
			if !slices.ContainsFunc(units, func(u unitplan.Unit) bool { return u.Name == name }) {
				problems = append(problems, in[key+".onChange"].problem(key+".onChange",
					"%s is not on the allowlist; to allow it add %s", name, toAllow(name)))
			}
		}
		specs = append(specs, spec)
	}
	return specs, problems
}

// shared reports whether two fields may have one file: the two registry lists describe one directory.
func shared(a, b plan.FileSpec) bool {
	return a.Path == b.Path && a.OwnDirectory() && b.OwnDirectory()
}

// unverifiable says why no server can show that it uses the file.
func unverifiable(r plan.FileSpec) string {
	switch {
	case r.Many():
		return "the field has a file for each entry, and no server shows which of them it uses"
	case r.Field.Secret():
		return "the file holds no certificates"
	}
	return ""
}
