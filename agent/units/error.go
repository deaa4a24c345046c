// SPDX-License-Identifier: Apache-2.0

package units

import (
	"cmp"
	"context"
	"errors"

	"github.com/godbus/dbus/v5"

	"github.com/node-cert-agent/node-cert-agent/agent/reloader"
	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
)

// reasons sort the names of D-Bus errors. Those of systemd are in its bus-common-errors.h.
var reasons = map[string]reloader.Reason{
	"org.freedesktop.DBus.Error.AccessDenied":                     reloader.Denied,
	"org.freedesktop.DBus.Error.AuthFailed":                       reloader.Denied,
	"org.freedesktop.DBus.Error.InteractiveAuthorizationRequired": reloader.Denied,

	"org.freedesktop.systemd1.NoSuchUnit":     reloader.NoSuchUnit,
	"org.freedesktop.systemd1.LoadFailed":     reloader.NoSuchUnit,
	"org.freedesktop.systemd1.UnitMasked":     reloader.NoSuchUnit,
	"org.freedesktop.systemd1.BadUnitSetting": reloader.NoSuchUnit,

	// A job of somebody else is in the way.
	"org.freedesktop.systemd1.TransactionIsDestructive": reloader.Later,

	"org.freedesktop.systemd1.JobTypeNotApplicable": reloader.NotApplicable,
	"org.freedesktop.systemd1.OnlyByDependency":     reloader.NotApplicable,

	"org.freedesktop.DBus.Error.Disconnected":   reloader.Unreachable,
	"org.freedesktop.DBus.Error.NameHasNoOwner": reloader.Unreachable,
	"org.freedesktop.DBus.Error.NoReply":        reloader.Unreachable,
	"org.freedesktop.DBus.Error.NoServer":       reloader.Unreachable,
	"org.freedesktop.DBus.Error.ServiceUnknown": reloader.Unreachable,
	"org.freedesktop.DBus.Error.Timeout":        reloader.Unreachable,
}

// failure turns what went wrong into an Error about the unit.
func failure(unit string, verb unitplan.Verb, err error) *reloader.Error {
	f := &reloader.Error{Unit: unit, Verb: verb}
	var own *reloader.Error
	var answer dbus.Error
	switch {
	case errors.As(err, &own):
		f.Reason, f.Detail = own.Reason, own.Detail
	case errors.As(err, &answer):
		f.Reason, f.Detail = cmp.Or(reasons[answer.Name], reloader.Unexpected), answer.Name
		if message := answer.Error(); message != answer.Name {
			f.Detail += ": " + message
		}
	case errors.Is(err, context.Canceled):
		f.Reason, f.Detail = reloader.Unfinished, "nobody waits for the answer of systemd any more"
	case errors.Is(err, context.DeadlineExceeded):
		f.Reason, f.Detail = reloader.Unreachable, "no answer from systemd in time"
	default:
		// What is left is the connection: closed, reset, or an answer that is not D-Bus.
		f.Reason, f.Detail = reloader.Unreachable, err.Error()
	}
	return f
}
