// SPDX-License-Identifier: Apache-2.0

// Package config turns the administrator's configuration into Settings: fragments (files) are
// parsed into inputs (key, value, place), inputs of all layers are merged key by key, and the merged
// inputs are validated as a whole.
//
// It owns the format config.node-cert-agent.io/v1alpha1 and the rules of what may be asked of the
// host: where managed files may be, which units and verbs may be on the allowlist. Both halves of the
// agent read their configuration here, and only here.
//
// It is strict: an unknown or repeated key, a value of the wrong type or out of range, an alias or a
// second document is an Error that names file, line and key; several problems are reported
// together. It reads only regular files that root alone can have written, refuses links other than
// masks, and never guesses.
//
// The order of directories and the masks are those of systemd; see systemd.unit(5) and
// https://uapi-group.org/specifications/specs/configuration_files_specification.
package config

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
)

// Settings is a valid configuration. It is a value: nobody changes it after Load.
type Settings struct {
	// Profile is the name of the profile in force.
	Profile string
	// NodeName is the configured name of the node; empty means that it is to be discovered.
	NodeName         string
	ControllerConfig ControllerConfig
	// ConfigMap is the second source; zero if no enabled file takes from it.
	ConfigMap ConfigMap
	// Policy holds the enabled files, in the order of plan.Fields, and the allowlist by name.
	Policy  unitplan.Policy
	Actions actions
	// Resync is the time between two full comparisons, before jitter.
	Resync time.Duration
	Watch  watch
	// ProbeTimeout is how long a consumer may take to be seen with new bytes.
	ProbeTimeout time.Duration
	// Consume says what happens to a bootstrap credential that has served: delete, mark-used or keep.
	Consume string
	// KubeletIdentity lets the kubelet's client certificate ask for a lost identity.
	KubeletIdentity bool
	// Pins are the public keys of the cluster's CAs, as sha256:<hex>.
	Pins []string
	// FollowHint lets the ControllerConfig announce that its cluster moves: always, or where pins say which CAs will do.
	FollowHint bool
	Identity   identity
	Renewal    renewal
	// Files are the files that it was read from, the weakest first.
	Files []string
	// Digest covers the path and bytes of every file that was read. Equal digests mean that there
	// is nothing to do after a change was announced.
	Digest plan.Digest
}

// ControllerConfig says which object is watched.
type ControllerConfig struct {
	Group, Version, Resource, Name string
}

// ConfigMap says which ConfigMap is watched, and which of its keys is taken.
type ConfigMap struct {
	Namespace, Name, Key string
}

// actions says how unit actions are carried out: see unitactions.Times. Timeout is Job there.
type actions struct{ BatchWindow, RandomizedDelay, Timeout time.Duration }

// watch says how the ControllerConfig is watched: see watch.Options.
type watch struct{ RetryJitter, RetryMax, IdleTimeout, Timeout time.Duration }

// identity says how the agent's own certificate is got and kept: see identity.Options and identity.Times.
type identity struct {
	Lifetime, PollInterval, IdlePollInterval, ApprovalPollMax time.Duration
	CheckInterval, SuspectAfter, DeniedMin, DeniedMax         time.Duration
}

// renewal says how the certificates of a control plane are looked after: see pair.Policy and renew.Renewer.
type renewal struct {
	Mode                              string
	Lifetime                          time.Duration
	ReuseKey, Restart, ThroughEtcd    bool
	RenewBefore, WarnBefore, Interval time.Duration
	DegradedBelow, Timeout            time.Duration
}

// Error is one problem of the configuration. Load joins several with errors.Join; each is found in
// the result's Unwrap() []error.
type Error struct {
	// File is the path as it was opened, or that of the directory that cannot be read.
	File string
	// Line counts from 1; 0 means the file as a whole.
	Line int
	// Key is the path of keys, joined by dots; empty means the file as a whole.
	Key string
	// Problem is one lower-case line, with the allowed values where they can be listed.
	Problem string
}

// Error gives file:line: key: problem, leaving out what is not known.
func (e *Error) Error() string {
	place := e.File
	if e.Line > 0 {
		place = fmt.Sprintf("%s:%d", e.File, e.Line)
	}
	if e.Key != "" {
		place += ": " + e.Key
	}
	return place + ": " + e.Problem
}

// Load reads, merges and validates the configuration. The error, if any, joins at least one *Error
// and nothing else; the Settings are then zero.
func Load(o Options) (Settings, error) {
	r := newReader(o)
	fragments, problems := r.fragments()
	layers, more := parseAll(fragments, fragmentRules)
	problems = append(problems, more...)

	chosen, more := r.profiles(merge(layers)["profile"])
	problems = append(problems, more...)
	base, more := parseAll(chosen, profileRules)
	problems = append(problems, more...)
	if len(problems) > 0 {
		// What one broken file left out would only show as further problems of the others.
		return Settings{}, errors.Join(problems...)
	}

	in := merge(append(base, layers...))
	s, problems := in.settings()
	if len(problems) > 0 {
		return Settings{}, errors.Join(problems...)
	}
	read := append(chosen, fragments...)
	for _, f := range read {
		s.Files = append(s.Files, f.path)
	}
	s.Digest = digest(read)
	return s, nil
}

// merge lays later layers over earlier ones, key by key.
func merge(layers []inputs) inputs {
	in := inputs{}
	for _, l := range layers {
		maps.Copy(in, l)
	}
	return in
}
