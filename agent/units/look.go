// SPDX-License-Identifier: Apache-2.0

package units

import (
	"context"
	"errors"

	"github.com/godbus/dbus/v5"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// Nobody is a unit that does not exist: the name is ours, and we ship none of that name.
const Nobody = "node-cert-agent-nobody.service"

// unitMasked is how systemd passes on that it could not ask a masked polkit.service. Nobody's unit is
// not masked.
const unitMasked = "org.freedesktop.systemd1.UnitMasked"

// Refuses asks for a try-restart of Nobody, as the user of this process, and reports whether that was
// refused as it should be for whoever is confined to an allowlist. Where it is not, nothing happens:
// systemd has nothing to restart, and to try-restart starts nothing. The error is an *Error.
func (c *Conn) Refuses(ctx context.Context) (bool, error) {
	bus, err := c.connect(ctx)
	if err != nil {
		return false, failure(Nobody, plan.TryRestart, err)
	}
	err = bus.Object(systemd, managerPath).CallWithContext(ctx, methods[plan.TryRestart], 0, Nobody, "replace").Err
	if err == nil {
		return false, nil
	}
	var answer dbus.Error
	masked := errors.As(err, &answer) && answer.Name == unitMasked
	switch f := failure(Nobody, plan.TryRestart, err); {
	case f.Reason == Denied, masked:
		return true, nil
	case f.Reason == NoSuchUnit:
		return false, nil // the unit was looked for, which comes after the question who asks
	default:
		return false, f
	}
}

// Systemd is the version that systemd gives of itself, such as "252.39-1~deb12u1". The error is an
// *Error.
func (c *Conn) Systemd(ctx context.Context) (string, error) {
	return c.property(ctx, systemd, managerPath, managerIface, "Version")
}

// Polkit is the version that polkit gives of itself, such as "0.105" or "122"; polkit is started for
// that if it does not run. The error is an *Error.
func (c *Conn) Polkit(ctx context.Context) (string, error) {
	const name = "org.freedesktop.PolicyKit1"
	return c.property(ctx, name, "/org/freedesktop/PolicyKit1/Authority", name+".Authority", "BackendVersion")
}

func (c *Conn) property(ctx context.Context, name string, path dbus.ObjectPath, iface, property string) (string, error) {
	bus, err := c.connect(ctx)
	if err != nil {
		return "", failure(name, "", err)
	}
	var v dbus.Variant
	if err := bus.Object(name, path).CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", 0, iface, property).Store(&v); err != nil {
		return "", failure(name, "", err)
	}
	text, _ := v.Value().(string)
	return text, nil
}

// Name is the name that systemd has a unit under, and that it tells polkit: another one if it was asked
// about by an alias (Alias= of systemd.unit(5)). The error is an *Error.
func (c *Conn) Name(ctx context.Context, unit string) (string, error) {
	return c.property(ctx, systemd, unitPath(unit), unitIface, "Id")
}

// Program is what a service runs when it starts, by its path; empty if it runs nothing. The error is an
// *Error.
func (c *Conn) Program(ctx context.Context, service string) (string, error) {
	bus, err := c.connect(ctx)
	if err != nil {
		return "", failure(service, "", err)
	}
	var v dbus.Variant
	if err := bus.Object(systemd, unitPath(service)).CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", 0, serviceIface, "ExecStart").Store(&v); err != nil {
		return "", failure(service, "", err)
	}
	commands, _ := v.Value().([][]any) // the path is the first of what systemd has of each
	if len(commands) == 0 || len(commands[0]) == 0 {
		return "", nil
	}
	path, _ := commands[0][0].(string)
	return path, nil
}

// MainPID is the process of a service, or 0 if it does not run. The error is an *Error.
func (c *Conn) MainPID(ctx context.Context, service string) (int, error) {
	bus, err := c.connect(ctx)
	if err != nil {
		return 0, failure(service, "", err)
	}
	var v dbus.Variant
	if err := bus.Object(systemd, unitPath(service)).CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", 0, serviceIface, "MainPID").Store(&v); err != nil {
		return 0, failure(service, "", err)
	}
	pid, _ := v.Value().(uint32)
	return int(pid), nil
}
