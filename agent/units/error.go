// SPDX-License-Identifier: Apache-2.0

package units

import (
	"context"
	"errors"

	"github.com/godbus/dbus/v5"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// Reason says why something could not be done or seen, for decisions and records.
type Reason string

// The reasons. What follows each is what the caller can expect of a second try.
const (
	Refused       Reason = "refused"        // not one of our verbs; systemd was not asked
	Denied        Reason = "denied"         // polkit does not allow it, or cannot be asked
	NoSuchUnit    Reason = "no-such-unit"   // not found, masked, or with a broken unit file
	NotApplicable Reason = "not-applicable" // the unit cannot do it, such as reload without ExecReload=
	JobFailed     Reason = "job-failed"     // the job ended with another result than done
	NotActive     Reason = "not-active"     // the job is done and the unit does not run
	Unfinished    Reason = "unfinished"     // the caller's time is over; the job goes on
	Unreachable   Reason = "unreachable"    // no bus, or no systemd on it; what became of a job is unknown
	Unexpected    Reason = "unexpected"     // any other answer
)

// Error is the failure of an action, or of looking at a unit (then Verb is empty).
type Error struct {
	Unit   string
	Verb   plan.Verb
	Reason Reason
	// Detail is the fact, often in systemd's own words. It is not ours: escape it before it is shown.
	Detail string
}

// Error gives "verb unit: reason: detail".
func (e *Error) Error() string {
	verb := "read state of"
	if e.Verb != "" {
		verb = string(e.Verb)
	}
	return verb + " " + e.Unit + ": " + string(e.Reason) + ": " + e.Detail
}

// Unreachable tells a failure of the bus from one of the unit: the job may be under way, or never have
// been.
func (e *Error) Unreachable() bool { return e.Reason == Unreachable }

// Denied tells that systemd did nothing, since polkit does not allow it.
func (e *Error) Denied() bool { return e.Reason == Denied }

// reasons sort the names of D-Bus errors. Those of systemd are in its bus-common-errors.h.
var reasons = map[string]Reason{
	"org.freedesktop.DBus.Error.AccessDenied":                     Denied,
	"org.freedesktop.DBus.Error.AuthFailed":                       Denied,
	"org.freedesktop.DBus.Error.InteractiveAuthorizationRequired": Denied,

	"org.freedesktop.systemd1.NoSuchUnit":     NoSuchUnit,
	"org.freedesktop.systemd1.LoadFailed":     NoSuchUnit,
	"org.freedesktop.systemd1.UnitMasked":     NoSuchUnit,
	"org.freedesktop.systemd1.BadUnitSetting": NoSuchUnit,

	"org.freedesktop.systemd1.JobTypeNotApplicable": NotApplicable,
	"org.freedesktop.systemd1.OnlyByDependency":     NotApplicable,

	"org.freedesktop.DBus.Error.Disconnected":   Unreachable,
	"org.freedesktop.DBus.Error.NameHasNoOwner": Unreachable,
	"org.freedesktop.DBus.Error.NoReply":        Unreachable,
	"org.freedesktop.DBus.Error.NoServer":       Unreachable,
	"org.freedesktop.DBus.Error.ServiceUnknown": Unreachable,
	"org.freedesktop.DBus.Error.Timeout":        Unreachable,
}

// failure turns what went wrong into an Error about the unit.
func failure(unit string, verb plan.Verb, err error) *Error {
	f := &Error{Unit: unit, Verb: verb}
	var own *Error
	var answer dbus.Error
	switch {
	case errors.As(err, &own):
		f.Reason, f.Detail = own.Reason, own.Detail
	case errors.As(err, &answer):
		f.Reason, f.Detail = reasons[answer.Name], answer.Name
		if f.Reason == "" {
			f.Reason = Unexpected
		}
		if words := answer.Error(); words != answer.Name {
			f.Detail += ": " + words
		}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		f.Reason, f.Detail = Unfinished, "no answer from systemd in time"
	default:
		// What is left is the connection: closed, reset, or an answer that is not D-Bus.
		f.Reason, f.Detail = Unreachable, err.Error()
	}
	return f
}
