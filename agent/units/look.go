// SPDX-License-Identifier: Apache-2.0

package units

import (
	"context"
	"encoding/hex"
	"maps"
	"slices"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"github.com/node-cert-agent/node-cert-agent/agent/reloader"
	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
)

// Look implements reloader.Systemd. What it says of affected units is as of now: systemd knows a dependency
// on a unit only while it has loaded the one that depends. Units that do not run are among them. The
// error is a *reloader.Error.
func (c *Conn) Look(ctx context.Context, u unitplan.Unit) (reloader.Seen, error) {
	fail := func(name string, err error) (reloader.Seen, error) { return reloader.Seen{}, failure(name, "", err) }
	bus, err := c.connect(ctx)
	if err != nil {
		return fail(u.Name, err)
	}
	props, err := properties(ctx, bus, u.Name)
	if err != nil {
		f := failure(u.Name, "", err)
		if f.Reason == reloader.NoSuchUnit {
			return reloader.Seen{}, nil
		}
		return reloader.Seen{}, f
	}
	s := reloader.Seen{Name: text(props, "Id"), State: state(props)}
	if !s.State.Exists {
		return reloader.Seen{}, nil
	}
	if u.Verb == unitplan.Restart {
		if s.Program, err = program(ctx, bus, u.Name); err != nil {
			return fail(u.Name, err)
		}
	}
	affected, err := closure(ctx, bus, u, props)
	if err != nil {
		return reloader.Seen{}, err
	}
	s.Affected = slices.Sorted(maps.Keys(affected))
	s.Starts = []unitplan.State{started(props)}
	for _, props := range affected {
		s.Starts = append(s.Starts, started(props))
	}
	return s, nil
}

// Version implements reloader.Systemd.
func (c *Conn) Version(ctx context.Context) (string, error) {
	bus, err := c.connect(ctx)
	if err != nil {
		return "", failure(systemd, "", err)
	}
	v, err := get(ctx, bus, managerPath, managerIface, "Version")
	if err != nil {
		return "", failure(systemd, "", err)
	}
	version, _ := v.(string)
	return version, nil
}

// program is what a service runs when it starts, by its path; empty if it runs nothing.
func program(ctx context.Context, bus *dbus.Conn, service string) (string, error) {
	v, err := get(ctx, bus, unitPath(service), serviceIface, "ExecStart")
	commands, _ := v.([][]any) // the path is the first of what systemd has of each
	if len(commands) == 0 || len(commands[0]) == 0 {
		return "", err
	}
	path, _ := commands[0][0].(string)
	return path, nil
}

func get(ctx context.Context, bus *dbus.Conn, path dbus.ObjectPath, iface, property string) (any, error) {
	var v dbus.Variant
	err := bus.Object(systemd, path).CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", 0, iface,
		property).Store(&v)
	return v.Value(), err
}

func properties(ctx context.Context, bus *dbus.Conn, name string) (map[string]dbus.Variant, error) {
	var props map[string]dbus.Variant
	err := bus.Object(systemd, unitPath(name)).CallWithContext(ctx, "org.freedesktop.DBus.Properties.GetAll", 0,
		unitIface).Store(&props)
	return props, err
}

// state projects a unit's properties.
func state(props map[string]dbus.Variant) unitplan.State {
	switch text(props, "LoadState") {
	case "not-found", "masked":
		return unitplan.State{}
	}
	s := unitplan.State{Exists: true}
	switch text(props, "ActiveState") {
	case "active", "activating", "reloading", "refreshing":
		s.Active = true
	case "failed":
		s.Failed = true
	}
	if id, ok := props["InvocationID"].Value().([]byte); ok {
		s.Invocation = hex.EncodeToString(id)
	}
	if usec, ok := props["InactiveExitTimestamp"].Value().(uint64); ok && usec > 0 {
		s.Since = time.UnixMicro(int64(usec))
	}
	if usec, ok := props["InactiveExitTimestampMonotonic"].Value().(uint64); ok && usec < maxUsec {
		s.SinceUptime = time.Duration(usec) * time.Microsecond
	}
	_, s.Busy = currentJob(props)
	burst, _ := props["StartLimitBurst"].Value().(uint32)
	if usec, ok := props["StartLimitIntervalUSec"].Value().(uint64); ok && usec > 0 && usec < maxUsec && burst > 0 {
		s.StartBurst, s.StartInterval = int(burst), time.Duration(usec)*time.Microsecond
	}
	return s
}

// currentJob is the one that systemd has for the unit.
func currentJob(props map[string]dbus.Variant) (path dbus.ObjectPath, ok bool) {
	job, _ := props["Job"].Value().([]any)
	if len(job) != 2 || job[0] == uint32(0) {
		return "", false
	}
	path, _ = job[1].(dbus.ObjectPath)
	return path, true
}

// maxUsec is a century; "infinity" is far above it and would not fit a Duration.
const maxUsec = 100 * 365 * 24 * 3600 * 1_000_000

// started is the state with the time of the last start by the clock that systemd counts starts with, which
// nobody sets.
func started(props map[string]dbus.Variant) unitplan.State {
	s := state(props)
	s.Since = time.Time{}
	if s.SinceUptime > 0 {
		s.Since = time.Now().Add(s.SinceUptime - monotonic())
	}
	return s
}

// monotonic is CLOCK_MONOTONIC of clock_gettime(2).
func monotonic() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // every Linux has it
	}
	return time.Duration(t.Nano())
}

func text(props map[string]dbus.Variant, name string) string {
	s, _ := props[name].Value().(string)
	return s
}

// restarts are the dependencies along which systemd carries a restart to other units. It follows
// PropagatesStopTo with 257 and not with 252 (seen).
var restarts = []string{"RequiredBy", "RequisiteOf", "BoundBy", "ConsistsOf", "PropagatesStopTo"}

// propagates are the dependencies that matter for a verb. Source: "Mapping of unit properties to their
// inverses" in systemd.unit(5), and what a transaction does with them (PROPAGATE_RESTART and
// PROPAGATES_RELOAD_TO in unit-dependency-atom.c of systemd). What a start pulls in (Requires=, Wants=)
// is not among them: it starts what is missing and disturbs nothing that runs.
var propagates = map[unitplan.Verb][]string{
	unitplan.Reload:     {"PropagatesReloadTo"},
	unitplan.TryRestart: restarts,
	unitplan.Restart:    restarts,
}

// closure finds the other units that systemd would act on along with the verb, directly or through one
// another, and their properties. The error is a *reloader.Error.
func closure(ctx context.Context, bus *dbus.Conn, u unitplan.Unit,
	props map[string]dbus.Variant) (map[string]map[string]dbus.Variant, error) {
	seen := map[string]map[string]dbus.Variant{u.Name: props}
	for next := []string{u.Name}; len(next) > 0; next = next[1:] {
		for _, name := range dependents(seen[next[0]], u.Verb) {
			if seen[name] != nil {
				continue
			}
			var err error
			if seen[name], err = properties(ctx, bus, name); err != nil {
				return nil, failure(name, "", err)
			}
			next = append(next, name)
		}
	}
	delete(seen, u.Name)
	return seen, nil
}

func dependents(props map[string]dbus.Variant, v unitplan.Verb) (names []string) {
	for _, property := range propagates[v] {
		list, _ := props[property].Value().([]string)
		names = append(names, list...)
	}
	return names
}
