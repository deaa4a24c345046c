// SPDX-License-Identifier: Apache-2.0

// Package unitactions has the allowlisted units load what is on disk: it asks systemd, lets package unitplan decide
// what is pending, waits for its time, dispatches, and takes in what became of it.
//
// It makes durable that a unit's state is unknown before an action is sent, if anything can be written. It looks at no
// file: what units read, and whether that is in doubt, it is told. It promises no order between units but
// that of oneshots before the units that load what they make.
package unitactions

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/clock"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/agent/state"
	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
)

const (
	// busTimeout bounds what systemd answers at once.
	busTimeout = 10 * time.Second
	// maxFailures of one action in a row open the unit's breaker.
	maxFailures = 5
)

// Systemd is asked about units. It is safe for concurrent use.
type Systemd interface {
	State(ctx context.Context, unit string) (unitplan.State, error)
	// Affected names the other units on which systemd would act along with the unit's verb.
	Affected(context.Context, unitplan.Unit) ([]string, error)
	// Act carries out the unit's verb, waits for the job and gives the state after it. It fails
	// unless the job is done and the unit active, or a oneshot that finished well. An error that has
	// a method Unreachable() bool and answers true says that the bus failed, not the unit; one that
	// answers true to Denied() bool, that the host's configuration does not allow it. One whose
	// Postponed() time.Time is not zero says that nothing was tried yet, and when to ask again.
	Act(context.Context, unitplan.Unit) (unitplan.State, error)
}

// Options are what Actions need from outside.
type Options struct {
	// Systemd may be nil when the allowlist is empty.
	Systemd Systemd
	Memory  *state.Memory
	Trail   audit.Recorder
	Clock   clock.Host
	Log     *zap.Logger
	Policy  unitplan.Policy
	Backoff clock.Backoff
	Times   Times
	// Node seeds what must differ between the hosts of a fleet.
	Node string
}

// Times are the durations of actions.
type Times struct {
	// BatchWindow is how long an action waits for more changes.
	BatchWindow time.Duration
	// RandomizedDelay is over how long a fleet spreads its restarts; each node has its own place in it.
	RandomizedDelay time.Duration
	// Job is how long a unit's job may take before it is reported; systemd goes on with it.
	Job time.Duration
	// Breaker is how long an action that failed again and again is left alone before one more try.
	Breaker time.Duration
}

// Actions own what is known of the allowlisted units beyond what is remembered of them. One goroutine uses them.
type Actions struct {
	Options
	units   map[string]*unit
	jobs    chan Job
	counter report.ActionCounter
}

// unit is what is known of one.
type unit struct {
	state    report.UnitState
	reason   string
	due      time.Time // when the pending action may be carried out; zero if nothing is pending
	again    time.Time // when a pending action is looked at again although nothing happens; zero: never
	lastDone time.Time

	running   bool
	overdue   time.Time     // when a running job will have taken too long
	disturbed time.Duration // the uptime when its files were written last, if that was since it was dispatched
	done      *Job          // the last, as long as it is not known what the unit has loaded by it

	failing
	aside *unit // what failed with other inputs, as long as these were not tried
}

// failing is how a unit's action failed.
type failing struct {
	failures int         // in a row, with the same inputs
	failed   plan.Digest // those inputs
	lost     int         // how often in a row the bus was, instead
	opened   time.Time   // when the breaker opened; zero while it is closed
}

// Job is the end of a dispatched action.
type Job struct {
	unit     unitplan.Unit
	affected []string
	inputs   unitplan.Inputs
	after    unitplan.State
	err      error
}

// New knows nothing yet.
func New(o Options) *Actions {
	return &Actions{Options: o, units: make(map[string]*unit), jobs: make(chan Job, len(o.Policy.Units))}
}

// Jobs yields the end of each job that was dispatched, which belongs to Ended.
func (a *Actions) Jobs() <-chan Job { return a.jobs }

// unit is what is known of an allowlisted unit, to be changed.
func (a *Actions) unit(name string) *unit {
	s := a.units[name]
	if s == nil {
		s = &unit{}
		a.units[name] = s
	}
	return s
}

// Timers are those that are set. As long as nothing is desired no action is dispatched, but a job may be under way.
func (a *Actions) Timers(desired bool) (set []clock.Timer) {
	for _, u := range a.Policy.Units {
		switch s := a.units[u.Name]; {
		case s == nil:
		case s.running:
			set = append(set, clock.Timer{What: "the job of " + u.Name, At: s.overdue})
		case desired:
			set = append(set, clock.Timer{What: "the action on " + u.Name, At: s.again})
		}
	}
	return set
}

// Busy tells whether an action is pending or under way.
func (a *Actions) Busy() bool {
	for _, u := range a.units {
		if u.running || !u.again.IsZero() && u.failures == 0 {
			return true
		}
	}
	return false
}

// Waits says which unit has yet to load the file, or nothing.
func (a *Actions) Waits(spec plan.FileSpec) string {
	for _, name := range spec.OnChange {
		if u := a.units[name]; u != nil && !u.state.Settled() {
			return name + " has yet to act"
		}
	}
	return ""
}

// Status shows each unit, and how many actions succeeded and failed.
func (a *Actions) Status() (all []report.Unit, n report.ActionCounter) {
	for _, u := range a.Policy.Units {
		if s := a.units[u.Name]; s != nil {
			all = append(all, report.Unit{Name: u.Name, Verb: u.Verb, State: s.state, Reason: s.reason,
				Done: s.lastDone.UTC(), BreakerOpened: s.opened.UTC()})
		}
	}
	return all, a.counter
}
