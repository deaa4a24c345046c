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
)

// dialTimeout bounds connecting, so that a bus that accepts and stays silent is reported.
const dialTimeout = 5 * time.Second

// methods are all that can be asked of a unit.
var methods = map[plan.Verb]string{
	plan.Reload:     managerIface + ".ReloadUnit",
	plan.TryRestart: managerIface + ".TryRestartUnit",
}

// Conn is a way to systemd. It is safe for concurrent use.
type Conn struct {
	address, boot string

	mu  sync.Mutex
	bus *dbus.Conn // nil until the first call
}

// New prepares a connection to the bus at a D-Bus address, usually SystemBus; it is dialled by the
// first call. Boot is the boot ID that states are marked with (sd_id128_get_boot(3)).
func New(address, boot string) *Conn { return &Conn{address: address, boot: boot} }

// Close ends the connection; calls under way fail with Unreachable. A later call dials again.
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bus == nil {
		return nil
	}
	return c.bus.Close()
}

// State says whether a unit runs, and since when. A unit that is inactive, masked or does not exist
// has the zero state; one that runs although its file is gone or masked is active. The error is an
// *Error.
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

// Act asks for the unit's verb, waits for the job to end and returns the unit's new state. It
// succeeds only if the job is done and the unit is active. When ctx ends first, the job goes on in
// systemd and Unfinished is returned. The error is an *Error.
func (c *Conn) Act(ctx context.Context, u plan.Unit) (plan.UnitState, error) {
	fail := func(err error) (plan.UnitState, error) { return plan.UnitState{}, failure(u.Name, u.Verb, err) }
	method, ok := methods[u.Verb]
	if !ok {
		return fail(&Error{Reason: Refused, Detail: "the verbs are reload and try-restart"})
	}
	bus, err := c.connect(ctx)
	if err != nil {
		return fail(err)
	}
	result, err := run(ctx, bus, method, u.Name)
	if err != nil {
		return fail(err)
	}
	if result != "done" {
		return fail(&Error{Reason: JobFailed, Detail: "the job's result is " + result})
	}
	props, err := properties(ctx, bus, u.Name)
	if err != nil {
		return fail(err)
	}
	switch active := text(props, "ActiveState"); active {
	case "active", "reloading", "refreshing":
		return c.state(props), nil
	default:
		// A try-restart of an inactive unit is done without doing anything, and the fifth restart in
		// ten seconds is done and leaves the unit failed.
		return fail(&Error{Reason: NotActive, Detail: "the job is done and the unit is " + active + " (" + text(props, "SubState") + ")"})
	}
}

// run queues a job and waits for its result. Each call listens for itself: one listener for all
// would have to hold back the others while systemd asks polkit about one.
func run(ctx context.Context, bus *dbus.Conn, method, name string) (string, error) {
	// Listening comes first, because the job may end before its path is known here.
	signals := make(chan *dbus.Signal, 16)
	bus.Signal(signals)
	defer bus.RemoveSignal(signals)

	var job dbus.ObjectPath
	if err := bus.Object(systemd, managerPath).CallWithContext(ctx, method, 0, name, "replace").Store(&job); err != nil {
		return "", err
	}
	for {
		select {
		case <-ctx.Done():
			return "", &Error{Reason: Unfinished, Detail: "the job goes on"}
		case s := <-signals:
			if s == nil {
				return "", &Error{Reason: Unreachable, Detail: "the bus was lost before the job ended"}
			}
			result, ours := removed(s, job)
			if !ours {
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

// removed gives the result if the signal says that the job ended.
func removed(s *dbus.Signal, job dbus.ObjectPath) (result string, ours bool) {
	var (
		id   uint32
		path dbus.ObjectPath
		unit string
	)
	if s.Name != managerIface+".JobRemoved" || dbus.Store(s.Body, &id, &path, &unit, &result) != nil {
		return "", false
	}
	return result, path == job
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

func properties(ctx context.Context, bus *dbus.Conn, name string) (map[string]dbus.Variant, error) {
	path := dbus.ObjectPath(managerPath + "/unit/" + sdbus.PathBusEscape(name))
	var props map[string]dbus.Variant
	err := bus.Object(systemd, path).CallWithContext(ctx, "org.freedesktop.DBus.Properties.GetAll", 0, unitIface).Store(&props)
	return props, err
}

// state projects a unit's properties.
func (c *Conn) state(props map[string]dbus.Variant) plan.UnitState {
	switch text(props, "ActiveState") {
	case "active", "activating", "reloading", "refreshing":
	default:
		return plan.UnitState{}
	}
	s := plan.UnitState{Active: true, Boot: c.boot}
	if id, ok := props["InvocationID"].Value().([]byte); ok {
		s.Invocation = hex.EncodeToString(id)
	}
	if usec, ok := props["InactiveExitTimestamp"].Value().(uint64); ok && usec > 0 {
		s.Since = time.UnixMicro(int64(usec))
	}
	return s
}

func text(props map[string]dbus.Variant, name string) string {
	s, _ := props[name].Value().(string)
	return s
}
