// SPDX-License-Identifier: Apache-2.0

package reloader

import (
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/frame"
	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
)

// Limits of a request: the names of maxUnits units. Of a reply: what systemd says of them, with long lists
// of affected units. Neither has contents.
var (
	requests = frame.Limits{Text: 16 << 10, Values: 2 * maxUnits}
	replies  = frame.Limits{Text: 1 << 20, Values: 1 << 14}
)

// maxUnits is the largest number of units in one request.
const maxUnits = 32

// request asks for exactly one thing.
type request struct {
	Observe []string `json:"observe,omitempty"`
	Act     string   `json:"act,omitempty"`
	Version bool     `json:"version,omitempty"`
}

// parts counts what a request asks for.
func (q request) parts() (n int) {
	for _, asked := range []bool{len(q.Observe) > 0, q.Act != "", q.Version} {
		if asked {
			n++
		}
	}
	return n
}

// reply answers a request. States travel without their Boot: the reloader sees no boot ID, and the client
// is on the same host.
type reply struct {
	// Seen answers Observe, unit by unit.
	Seen []Seen `json:"seen,omitempty"`
	// Done answers Act.
	Done *done `json:"done,omitempty"`
	// Version answers Version.
	Version string `json:"version,omitempty"`
	Error   *Error `json:"error,omitempty"`
}

// done is an action that succeeded.
type done struct {
	// Verb is the configured one, by which it was done.
	Verb  unitplan.Verb  `json:"verb"`
	State unitplan.State `json:"state"`
}

// Reason says why something could not be done or seen, for decisions and records.
type Reason string

// The reasons. What follows each is what the caller can expect of a second try.
const (
	Refused       Reason = "refused"        // not on the allowlist, or against it; systemd was not asked
	Later         Reason = "later"          // allowed, and not yet: Error.RetryAt says when
	Denied        Reason = "denied"         // systemd or the bus does not let the reloader do it
	NoSuchUnit    Reason = "no-such-unit"   // not found, masked, or with a broken unit file
	NotApplicable Reason = "not-applicable" // the unit cannot do it, such as reload without ExecReload=
	JobFailed     Reason = "job-failed"     // the job ended with another result than done
	NotActive     Reason = "not-active"     // the job is done and the unit does not run
	Unfinished    Reason = "unfinished"     // the caller's time is over; the job goes on
	Unreachable   Reason = "unreachable"    // no reloader, bus or systemd; what became of a job is unknown
	Unexpected    Reason = "unexpected"     // any other answer
)

// Error is the failure of an action, or of looking at a unit (then Verb is empty). Every error of Client
// and of a Systemd is one.
type Error struct {
	Unit   string        `json:"unit,omitempty"`
	Verb   unitplan.Verb `json:"verb,omitempty"`
	Reason Reason        `json:"reason"`
	// Detail is the fact, often in systemd's own words: escape it before it is shown.
	Detail string `json:"detail,omitempty"`
	// RetryAt is when to ask again, by the clock of the host; zero unless Reason is Later.
	RetryAt time.Time `json:"again,omitzero"`
}

// Error gives "verb unit: reason: detail".
func (e *Error) Error() string {
	verb := "read state of"
	if e.Verb != "" {
		verb = string(e.Verb)
	}
	return verb + " " + e.Unit + ": " + string(e.Reason) + ": " + e.Detail
}

// Unreachable tells a failure of the way to systemd from one of the unit: the job may be under way, or
// never have been.
func (e *Error) Unreachable() bool { return e.Reason == Unreachable }

// Denied tells that systemd was not asked, or did nothing: the host's configuration does not allow it.
func (e *Error) Denied() bool { return e.Reason == Denied || e.Reason == Refused }

// Postponed is when to ask again for what is allowed and comes too early; zero for any other failure.
func (e *Error) Postponed() time.Time { return e.RetryAt }
