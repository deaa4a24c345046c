// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
)

// Setting is how a host is configured, and what may happen to it.
type Setting struct {
	Hold, Rest, Spread time.Duration

	// Units has the host an allowlist, and NoRestarter leaves one unit out of it.
	Units, NoRestarter bool
	// Beside is a host of which other programs write the files, too.
	Beside bool
	// PerCertificate lays the additional bundle out one certificate a file. TwoLists has both registry lists,
	// and Elsewhere puts them in another directory. NoRoot leaves a field out.
	PerCertificate, TwoLists, Elsewhere, NoRoot bool
	// ConfigMap has the second source. Proof has the trust source shrink only with one.
	ConfigMap, Proof bool

	// What may happen besides changes of the ControllerConfig.
	Crashes, Reboots, Faults, Drift, Others, Losses, Clocks, Operator, Reconfigure, Jobs bool
}

// flags are the switches of a setting by the words in which a walk is written down.
func (s *Setting) flags() ([]string, map[string]*bool) {
	m := map[string]*bool{"units": &s.Units, "no-restarter": &s.NoRestarter, "beside": &s.Beside,
		"per-certificate": &s.PerCertificate, "two-lists": &s.TwoLists,
		"elsewhere": &s.Elsewhere, "no-root": &s.NoRoot, "configmap": &s.ConfigMap, "proof": &s.Proof, "crashes": &s.Crashes,
		"reboots": &s.Reboots, "faults": &s.Faults,
		"drift": &s.Drift, "others": &s.Others, "losses": &s.Losses, "clocks": &s.Clocks, "operator": &s.Operator,
		"reconfigure": &s.Reconfigure, "jobs": &s.Jobs}
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, m
}

// String is the setting as ParseWalk reads it.
func (s Setting) String() string {
	words := []string{"hold=" + s.Hold.String(), "rest=" + s.Rest.String(), "spread=" + s.Spread.String()}
	names, flags := s.flags()
	for _, name := range names {
		if *flags[name] {
			words = append(words, name)
		}
	}
	return strings.Join(words, " ")
}

func parseSetting(text string) (s Setting, err error) {
	_, flags := s.flags()
	durations := map[string]*time.Duration{"hold": &s.Hold, "rest": &s.Rest, "spread": &s.Spread}
	for word := range strings.FieldsSeq(text) {
		name, value, valued := strings.Cut(word, "=")
		switch {
		case valued && durations[name] != nil:
			if *durations[name], err = time.ParseDuration(value); err != nil {
				return s, err
			}
		case !valued && flags[word] != nil:
			*flags[word] = true
		default:
			return s, fmt.Errorf("no such word in a setting: %s", word)
		}
	}
	return s, nil
}

func drawSetting(r *rand.Rand) Setting {
	p := func(x float64) bool { return r.Float64() < x }
	return Setting{Hold: pick(r, time.Hour, time.Hour, 10*time.Minute, 0), Rest: pick(r, 0, 20*time.Millisecond),
		Spread: pick(r, 0, 0, 10*time.Minute),
		Units:  p(0.85), NoRestarter: p(0.05), Beside: p(0.1), PerCertificate: p(0.3), TwoLists: p(0.5), ConfigMap: p(0.3),
		Proof:   p(0.3),
		Crashes: p(0.6), Reboots: p(0.35), Faults: p(0.4), Drift: p(0.5), Others: p(0.4), Losses: p(0.2), Clocks: p(0.2),
		Operator:    p(0.25),
		Reconfigure: p(0.15), Jobs: p(0.5)}
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// The places of the files.
const (
	kubeletCA  = "/k/kubelet-ca.crt"
	rootCA     = "/k/ca.crt"
	kubeconfig = "/k/kubeconfig"
	extraCA    = "/t/extra.crt"
	extraCAs   = "/t/{sha256}.crt"
	registries = "/c/{name}/ca.crt"
	elsewhere  = "/d/{name}/ca.crt"
)

// policy is the setting as the agent gets it.
func (s Setting) policy() unitplan.Policy {
	units := func(names ...string) []string {
		return slices.DeleteFunc(names, func(n string) bool { return !s.Units || s.NoRestarter && n == restarter })
	}
	extra, dirs := extraCA, registries
	if s.PerCertificate {
		extra = extraCAs
	}
	if s.Elsewhere {
		dirs = elsewhere
	}
	specs := []plan.FileSpec{{Field: plan.KubeAPIServerServingCAData, Path: kubeletCA, Mode: 0o644,
		OnChange: units(reader, restarter)}}
	if !s.NoRoot {
		specs = append(specs, plan.FileSpec{Field: plan.RootCAData, Path: rootCA, Mode: 0o644, OnChange: units(restarter)})
	}
	if s.ConfigMap {
		specs = append(specs, plan.FileSpec{Field: plan.KubeconfigCAData, Path: kubeconfig, OnChange: units(restarter)})
	}
	specs = append(specs, plan.FileSpec{Field: plan.AdditionalTrustBundle, Path: extra, Mode: 0o644,
		OnChange: units(maker, restarter)},
		plan.FileSpec{Field: plan.ImageRegistryBundleData, Path: dirs, Mode: 0o644, OnChange: units(reader)})
	if s.TwoLists {
		specs = append(specs, plan.FileSpec{Field: plan.ImageRegistryBundleUserData, Path: dirs, Mode: 0o644,
			OnChange: units(reader)})
	}
	p := unitplan.Policy{Policy: plan.Policy{Files: specs, Trust: plan.Trust{Hold: s.Hold, Mirror: s.Beside}}}
	if s.Beside {
		for i := range p.Files {
			p.Files[i] = p.Files[i].With([]plan.Writer{plan.MachineConfigDaemon, plan.NodeCA})
		}
	}
	switch {
	case s.Proof && s.ConfigMap:
		p.Trust.Source = plan.KubeconfigCAData
	case s.Proof:
		p.Trust.Source = plan.KubeAPIServerServingCAData
	}
	for _, name := range units(maker, reader, restarter) {
		p.Units = append(p.Units, unitplan.Unit{Name: name, Verb: map[string]unitplan.Verb{reader: unitplan.Reload,
			restarter: unitplan.TryRestart, maker: unitplan.Restart}[name]})
	}
	return p
}
