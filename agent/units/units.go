// SPDX-License-Identifier: Apache-2.0

package units

import (
	"context"
	"encoding/hex"
	"errors"
	"os"
	"strconv"
	"sync"
	"time"

	sdbus "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// SystemBus is the address of the system bus on every host with systemd. It is given, not looked up
// in the environment.
const SystemBus = "unix:path=/run/dbus/system_bus_socket"

const (
	systemd      = "org.freedesktop.systemd1"
	managerPath  = "/org/freedesktop/systemd1"
	managerIface = systemd + ".Manager"
	unitIface    = systemd + ".Unit"
	serviceIface = systemd + ".Service"
)

// dialTimeout bounds connecting, so that a bus that accepts and stays silent is reported.
const dialTimeout = 5 * time.Second

// methods are all that can be asked of a unit.
var methods = map[plan.Verb]string{
	plan.Reload:     managerIface + ".ReloadUnit",
	plan.TryRestart: managerIface + ".TryRestartUnit",
	plan.Restart:    managerIface + ".RestartUnit",
}

// Conn is a way to systemd. It is safe for concurrent use.
type Conn struct {
	address, boot string
	wishes        string // directory

	mu  sync.Mutex
	bus *dbus.Conn // nil until the first call
}

// New prepares a connection to the bus at a D-Bus address, usually SystemBus; it is dialled by the
// first call. Boot is the boot ID that states are marked with (sd_id128_get_boot(3)).
func New(address, boot string) *Conn { return &Conn{address: address, boot: boot, wishes: wishes} }

// Close ends the connection; calls under way fail with Unreachable. A later call dials again.
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bus == nil {
		return nil
	}
	return c.bus.Close()
}

// State says whether a unit runs, and since when. A unit that is masked or does not exist has the zero
// state. The error is an *Error.
func (c *Conn) State(ctx context.Context, name string) (plan.UnitState, error) {
	bus, err := c.connect(ctx)
	if err != nil {
		return plan.UnitState{}, failure(name, "", err)
	}
	props, err := properties(ctx, bus, name)
	if err != nil {
		f := failure(name, "", err)
		if f.Reason == NoSuchUnit {
			return plan.UnitState{}, nil
		}
		return plan.UnitState{}, f
	}
	return c.state(props), nil
}

// Act asks for the unit's verb, waits for the job to end, however long that takes, and returns the
// unit's new state. It succeeds only if the job is done and the unit is active or, for a restart, a
// oneshot that finished well. When ctx ends first, the job goes on in systemd and Unfinished is
// returned. The error is an *Error.
func (c *Conn) Act(ctx context.Context, u plan.Unit) (plan.UnitState, error) {
	fail := func(err error) (plan.UnitState, error) { return plan.UnitState{}, failure(u.Name, u.Verb, err) }
	method, ok := methods[u.Verb]
	if !ok {
		return fail(&Error{Reason: Refused, Detail: "the verbs are reload, try-restart and restart"})
	}
	bus, err := c.connect(ctx)
	if err != nil {
		return fail(err)
	}
	if u.Verb == plan.Restart {
		if err := oneshot(ctx, bus, u.Name); err != nil {
			return fail(err)
		}
	}
	result, err := run(ctx, bus, method, u.Name)
	if err != nil {
		f := denial(ctx, bus, u, err)
		if f.Reason != Denied {
			return fail(f)
		}
		if result, err = c.wish(ctx, bus, u, f); err != nil {
			return fail(err)
		}
	}
	if result != "done" {
		return fail(&Error{Reason: JobFailed, Detail: "the job's result is " + result})
	}
	props, err := properties(ctx, bus, u.Name)
	if err == nil {
		err = succeeded(ctx, bus, u, props)
	}
	if err != nil {
		return fail(err)
	}
	return c.state(props), nil
}

// denial finds the error of a masked polkit.service, which systemd passes on as if it were about the
// unit: ours is there.
func denial(ctx context.Context, bus *dbus.Conn, u plan.Unit, err error) *Error {
	f := failure(u.Name, u.Verb, err)
	if f.Reason == NoSuchUnit {
		if props, err := properties(ctx, bus, u.Name); err == nil && text(props, "LoadState") == "loaded" {
			f.Reason = Denied
		}
	}
	return f
}

// oneshot refuses to restart anything else: a restart starts what the administrator has stopped.
func oneshot(ctx context.Context, bus *dbus.Conn, name string) error {
	kind, err := serviceText(ctx, bus, name, "Type")
	if err == nil && kind != "oneshot" {
		err = &Error{Reason: Refused, Detail: "only a oneshot is restarted, and its type is " + kind}
	}
	return err
}

// succeeded looks at a unit after its job is done, which says little: a try-restart of an inactive unit
// is done without doing anything, and a restart beyond the start limit is done and leaves the unit
// failed.
func succeeded(ctx context.Context, bus *dbus.Conn, u plan.Unit, props map[string]dbus.Variant) error {
	active := text(props, "ActiveState")
	switch active {
	case "active", "reloading", "refreshing":
		return nil
	case "inactive":
		if u.Verb != plan.Restart {
			break
		}
		result, err := serviceText(ctx, bus, u.Name, "Result")
		if err == nil && result != "success" {
			err = &Error{Reason: NotActive, Detail: "the job is done and the result of its run is " + result}
		}
		return err
	}
	return &Error{Reason: NotActive, Detail: "the job is done and the unit is " + active + " (" + text(props, "SubState") + ")"}
}

// run queues a job and waits for its result.
func run(ctx context.Context, bus *dbus.Conn, method, name string) (string, error) {
	var job dbus.ObjectPath
	queue := func() error {
		return bus.Object(systemd, managerPath).CallWithContext(ctx, method, 0, name, "replace").Store(&job)
	}
	return await(ctx, bus, queue, func(j dbus.ObjectPath, _ string) bool { return j == job })
}

// await has a job begin and waits for the result of the one that is ours. Each call listens for itself:
// one listener for all would have to hold back the others while systemd asks polkit about one.
func await(ctx context.Context, bus *dbus.Conn, begin func() error, ours func(job dbus.ObjectPath, unit string) bool) (string, error) {
	// Listening comes first, because the job may end before its path is known here.
	signals := make(chan *dbus.Signal, 16)
	bus.Signal(signals)
	defer bus.RemoveSignal(signals)
	if err := begin(); err != nil {
		return "", err
	}
	for {
		select {
		case <-ctx.Done():
			return "", &Error{Reason: Unfinished, Detail: "the job goes on"}
		case s := <-signals:
			if s == nil {
				// The library says so before it counts the connection as lost, and the next call would get it again.
				_ = bus.Close() // waits for the end of that
				return "", &Error{Reason: Unreachable, Detail: "the bus was lost before the job ended"}
			}
			job, unit, result := removed(s)
			if job == "" || !ours(job, unit) {
				continue
			}
			// Any user may send a signal that looks like this; only systemd's counts.
			var owner string
			if err := bus.BusObject().CallWithContext(ctx, "org.freedesktop.DBus.GetNameOwner", 0, systemd).Store(&owner); err != nil {
				return "", err
			}
			if s.Sender == owner {
				return result, nil
			}
		}
	}
}

// removed reads the signal that a job ended; job is empty if it is another one.
func removed(s *dbus.Signal) (job dbus.ObjectPath, unit, result string) {
	var id uint32
	if s.Name != managerIface+".JobRemoved" || dbus.Store(s.Body, &id, &job, &unit, &result) != nil {
		return "", "", ""
	}
	return job, unit, result
}

// connect gives the live connection, or a new one.
func (c *Conn) connect(ctx context.Context) (*dbus.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bus != nil && c.bus.Connected() {
		return c.bus, nil
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	// The library closes a connection when the context it was made with ends. Ours outlives the
	// caller's, which only bounds the dialling.
	life, end := context.WithCancel(context.Background())
	keep := context.AfterFunc(ctx, end)
	bus, err := dial(ctx, life, c.address)
	if !keep() {
		err = errors.New("the bus did not answer in time")
	}
	if err != nil {
		end()
		return nil, &Error{Reason: Unreachable, Detail: err.Error()}
	}
	c.bus = bus
	return bus, nil
}

func dial(ctx, life context.Context, address string) (*dbus.Conn, error) {
	external := dbus.AuthExternal(strconv.Itoa(os.Geteuid()))
	bus, err := dbus.Connect(address, dbus.WithContext(life), dbus.WithAuth(external))
	if err != nil {
		return nil, err
	}
	return bus, bus.AddMatchSignalContext(ctx, dbus.WithMatchSender(systemd),
		dbus.WithMatchInterface(managerIface), dbus.WithMatchMember("JobRemoved"))
}

func unitPath(name string) dbus.ObjectPath {
	return dbus.ObjectPath(managerPath + "/unit/" + sdbus.PathBusEscape(name))
}

func properties(ctx context.Context, bus *dbus.Conn, name string) (map[string]dbus.Variant, error) {
	var props map[string]dbus.Variant
	err := bus.Object(systemd, unitPath(name)).CallWithContext(ctx, "org.freedesktop.DBus.Properties.GetAll", 0, unitIface).Store(&props)
	return props, err
}

// serviceText is a property that only services have.
func serviceText(ctx context.Context, bus *dbus.Conn, name, property string) (string, error) {
	var v dbus.Variant
	err := bus.Object(systemd, unitPath(name)).CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", 0, serviceIface, property).Store(&v)
	s, _ := v.Value().(string)
	return s, err
}

// state projects a unit's properties.
func (c *Conn) state(props map[string]dbus.Variant) plan.UnitState {
	switch text(props, "LoadState") {
	case "not-found", "masked":
		return plan.UnitState{}
	}
	s := plan.UnitState{Exists: true, Boot: c.boot}
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
	if job, ok := props["Job"].Value().([]any); ok && len(job) == 2 {
		s.Busy = job[0] != uint32(0)
	}
	burst, _ := props["StartLimitBurst"].Value().(uint32)
	if usec, ok := props["StartLimitIntervalUSec"].Value().(uint64); ok && usec > 0 && usec < maxUsec && burst > 0 {
		s.StartBurst, s.StartInterval = int(burst), time.Duration(usec)*time.Microsecond
	}
	return s
}

// maxUsec is a century; "infinity" is far above it and would not fit a Duration.
const maxUsec = 100 * 365 * 24 * 3600 * 1_000_000

func text(props map[string]dbus.Variant, name string) string {
	s, _ := props[name].Value().(string)
	return s
}
