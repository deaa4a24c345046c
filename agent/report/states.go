// SPDX-License-Identifier: Apache-2.0

package report

// SourceState is how following something goes, in a word or two. Those who follow own the words; only one of them
// is told from the others here.
type SourceState string

// Following says that it was read, and that changes are seen at once.
const Following SourceState = "following"

// IdentityState is how it stands with the agent's own identity, in the words of package identity.
type IdentityState string

// An identity is active if there is a certificate and it works, and renewing while it also asks for the next one.
const (
	Active   IdentityState = "active"
	Renewing IdentityState = "renewing"
)

// FileState is how it stands with a managed file.
type FileState string

// A file is in place, or pending until it is as the ControllerConfig wants it.
const (
	InPlace FileState = "in place"
	Pending FileState = "pending"
)

// OverrideState is how it stands with what was applied by hand.
type OverrideState string

// What was applied counts, or the ControllerConfig asked for something else since.
const (
	InForce   OverrideState = "in force"
	Overtaken OverrideState = "overtaken by the ControllerConfig"
)

// UnitState is how it stands with what a unit has loaded.
type UnitState string

// A unit has loaded what is on disk; has to, and will; has to, and may not while the host is paused; its job is under
// way, or takes too long; failed, and is tried again; failed too often, and is tried rarely; may not be acted on,
// because that would act on units that nobody allowed; nobody can say; does not run.
const (
	UpToDate    UnitState = "up to date"
	UnitPending UnitState = "pending"
	Paused      UnitState = "paused"
	Running     UnitState = "running"
	Overdue     UnitState = "overdue"
	Failed      UnitState = "failed"
	BreakerOpen UnitState = "breaker open"
	Refused     UnitState = "refused"
	Unknown     UnitState = "unknown"
	NotRunning  UnitState = "not running"
)

// Settled tells whether the unit has nothing to load.
func (s UnitState) Settled() bool { return s == UpToDate || s == NotRunning }
