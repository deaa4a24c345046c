// SPDX-License-Identifier: Apache-2.0

// Package unitplan decides which allowlisted units have to load what is on disk. It is pure: from what package plan
// says of files, what systemd says of a unit (State) and what the agent remembers of it (Loaded) it derives a
// Decision, which can express no unit that is not on the allowlist, and no verb but the one that the
// administrator chose.
//
// It also owns the vocabulary of units that the other packages share. It promises that a unit which is not known to
// have loaded what is on disk has its action pending however often the agent was killed. It does not ask systemd and
// does not read the clock.
package unitplan

import (
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// Policy is the administrator's word: what plan has of files, and the no-reboot allowlist.
type Policy struct {
	plan.Policy
	Units []Unit
}

// Verb is something that may be asked of a unit.
type Verb string

// The verbs that the allowlist may grant. There is no start (on systemd 257 a grant of it lets the
// user create transient units), no stop, no enable. Restart is for our own oneshots alone: each run of
// one is a load, so it is run although it is inactive.
const (
	Reload     Verb = "reload"
	TryRestart Verb = "try-restart"
	Restart    Verb = "restart"
)

// Unit is one entry of the no-reboot allowlist.
type Unit struct {
	Name string
	Verb Verb
	// AlsoAffects are the units that systemd acts on with this one; the administrator has seen them.
	AlsoAffects []string
}

// State is what systemd says about a unit. The zero value is a unit that does not exist.
type State struct {
	// Exists is false if there is no such unit, or it is masked: systemd then refuses every verb.
	Exists bool
	// Active is true while the unit runs or is about to (active, activating, reloading).
	Active bool
	// Failed is true if the last run ended badly.
	Failed bool
	// Busy is true while systemd has a job for the unit, whoever asked for it.
	Busy bool
	// Boot and Invocation identify this run of the unit, or the last one: sd_id128_get_boot(3) and
	// InvocationID of systemd.exec(5), which is empty once systemd has forgotten the unit.
	Boot, Invocation string
	// Since is when this run left the inactive state (InactiveExitTimestamp), before it read any
	// file.
	Since time.Time
	// SinceUptime is the same moment by a clock that nobody sets (InactiveExitTimestampMonotonic), zero if
	// systemd does not say. It leaves out what the host slept before, so it is the uptime then or less.
	SinceUptime time.Duration
	// StartBurst is how often systemd starts the unit within StartInterval before it lets it fail:
	// StartLimitBurst= of systemd.unit(5). Zero means that there is no limit.
	StartBurst    int
	StartInterval time.Duration
}

// Loaded is what the agent remembers of one unit.
type Loaded struct {
	// Inputs is the digest over the unit's input files when they were last loaded, in the run that
	// Boot and Invocation name.
	Inputs plan.Digest `json:"inputs,omitzero"`
	// Fields are the same field by field: a file that is configured later may have files that were there all the time. Nil
	// means that this is not known, and empty that there was none.
	Fields     map[plan.Field]plan.Digest `json:"fields,omitzero"`
	Boot       string                     `json:"boot,omitempty"`
	Invocation string                     `json:"invocation,omitempty"`
	// Unknown is durable before a job is dispatched: until the job is seen done, what the unit has
	// loaded is unknown, and Inputs are those that it is to load. The run that Boot and Invocation name, if
	// they do, is not known to have loaded them by anything that came before.
	Unknown bool `json:"unknown,omitempty"`
	// Made are, of a oneshot, the inputs of its last run that ended well: what others load is what it made
	// of them.
	Made plan.Digest `json:"made,omitzero"`
	// Tries counts the jobs in a row that were dispatched for these Inputs and not seen to succeed, the
	// last of them at Tried.
	Tries int       `json:"tries,omitempty"`
	Tried time.Time `json:"tried,omitzero"`
}
