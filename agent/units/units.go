// SPDX-License-Identifier: Apache-2.0

// Package units is D-Bus: it looks at systemd units and acts on them for package reloader, as its Systemd.
//
// It promises that nothing but reload, try-restart and, for a oneshot, restart is ever asked for, always in
// job mode "fail", which cancels no other job, that an action counts as done only if the job's result is "done" and the
// unit is active after it (or a oneshot that ended well), that actions on different units do not wait for each
// other, that a job is waited for until its end is announced or systemd has it no more, and that a lost bus
// is dialled again with the next call. It also finds which other units an action would act on.
//
// It uses the system bus only, and not systemd's private socket. It does not decide what may be done,
// repeat what failed, or cancel a job that takes long.
//
// Sources: org.freedesktop.systemd1(5), the D-Bus specification.
package units

import (
	"cmp"
	"context"
	"errors"
	"os"
	"strconv"
	"sync"
	"time"

	sdbus "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"

	"github.com/node-cert-agent/node-cert-agent/agent/reloader"
	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
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
var methods = map[unitplan.Verb]string{
	unitplan.Reload:     managerIface + ".ReloadUnit",
	unitplan.TryRestart: managerIface + ".TryRestartUnit",
	unitplan.Restart:    managerIface + ".RestartUnit",
}

// jobMode never touches a job of somebody else. With "replace", a restart that pulls in a unit which an
// administrator is stopping turns that stop into a start (seen with 252 and 257).
const jobMode = "fail"

const (
	// jobPollInterval is how often a job whose end was not announced is looked for: a signal can be lost, while
	// systemd executes itself anew for instance.
	jobPollInterval = time.Minute
	// lookTimeout bounds what systemd answers at once.
	lookTimeout = 10 * time.Second
)

// Conn is a way to systemd. It is safe for concurrent use.
type Conn struct {
	address      string
	pollInterval time.Duration

	mu  sync.Mutex
	bus *dbus.Conn // nil until the first call
}

// New prepares a connection to the bus at a D-Bus address, usually SystemBus; it is dialled by the
// first call.
func New(address string) *Conn { return &Conn{address: address, pollInterval: jobPollInterval} }

// Close ends the connection; calls under way fail as unreachable. A later call dials again.
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bus == nil {
		return nil
	}
	return c.bus.Close()
}

// Act implements reloader.Systemd. It waits for the end of the job, however long that takes. When ctx ends
// first, the job goes on in systemd and the reason is Unfinished; if systemd has lost the job without a word
// it is Unreachable. The error is a *reloader.Error.
func (c *Conn) Act(ctx context.Context, u unitplan.Unit) (unitplan.State, error) {
	fail := func(err error) (unitplan.State, error) { return unitplan.State{}, failure(u.Name, u.Verb, err) }
	method, ok := methods[u.Verb]
	if !ok {
		return fail(&reloader.Error{Reason: reloader.Refused, Detail: "the verbs are reload, try-restart and restart"})
	}
	bus, err := c.connect(ctx)
	if err != nil {
		return fail(err)
	}
	if u.Verb == unitplan.Restart {
		if err := oneshot(ctx, bus, u.Name); err != nil {
			return fail(err)
		}
	}
	result, err := c.runJob(ctx, bus, method, u.Name)
	if err != nil {
		return fail(err)
	}
	if result != "done" {
		return fail(&reloader.Error{Reason: reloader.JobFailed, Detail: "the job's result is " + result})
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	props, err := properties(ctx, bus, u.Name)
	if err == nil {
		err = succeeded(ctx, bus, u, props)
	}
	if err != nil {
		return fail(err)
	}
	return state(props), nil
}

// oneshot refuses to restart anything else: a restart starts what the administrator has stopped.
func oneshot(ctx context.Context, bus *dbus.Conn, name string) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	kind, err := serviceText(ctx, bus, name, "Type")
	if err == nil && kind != "oneshot" {
		err = &reloader.Error{Reason: reloader.Refused, Detail: "only a oneshot is restarted, and its type is " + kind}
	}
	return err
}

// succeeded looks at a unit after its job is done, which says little: a try-restart of an inactive unit
// is done without doing anything, and a restart beyond the start limit is done and leaves the unit
// failed.
func succeeded(ctx context.Context, bus *dbus.Conn, u unitplan.Unit, props map[string]dbus.Variant) error {
	active := text(props, "ActiveState")
	switch active {
	case "active", "reloading", "refreshing":
		return nil
	case "inactive":
		if u.Verb != unitplan.Restart {
			break
		}
		result, err := serviceText(ctx, bus, u.Name, "Result")
		if err == nil && result != "success" {
			err = &reloader.Error{Reason: reloader.NotActive, Detail: "the job is done and the result of its run is " + result}
		}
		return err
	}
	return &reloader.Error{Reason: reloader.NotActive, Detail: "the job is done and the unit is " + active + " (" +
		text(props, "SubState") + ")"}
}

// runJob queues a job and waits for its result. Each call listens for itself: one listener for all would
// have to hold back the others while systemd answers one.
func (c *Conn) runJob(ctx context.Context, bus *dbus.Conn, method, name string) (string, error) {
	// Listening comes first, because the job may end before its path is known here.
	signals := make(chan *dbus.Signal, 16)
	bus.Signal(signals)
	defer bus.RemoveSignal(signals)
	job, err := c.queue(ctx, bus, method, name)
	if err != nil {
		return "", err
	}
	poll := time.NewTicker(c.pollInterval)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return "", &reloader.Error{Reason: reloader.Unfinished, Detail: "the job goes on"}
		case s := <-signals:
			if result, err := jobResult(ctx, bus, s, job); result != "" || err != nil {
				return result, err
			}
		case <-poll.C:
			if !jobGone(ctx, bus, name, job) {
				continue
			}
			// systemd announces the end of a job before it forgets it: the signal would be here by now.
			for len(signals) > 0 {
				if result, err := jobResult(ctx, bus, <-signals, job); result != "" || err != nil {
					return result, err
				}
			}
			return "", &reloader.Error{Reason: reloader.Unreachable,
				Detail: "systemd has no such job any more, and did not say how it ended"}
		}
	}
}

// queue asks for a job. Nobody knows what became of a request that systemd does not answer.
func (c *Conn) queue(ctx context.Context, bus *dbus.Conn, method, name string) (job dbus.ObjectPath, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.pollInterval)
	defer cancel()
	err = bus.Object(systemd, managerPath).CallWithContext(ctx, method, 0, name, jobMode).Store(&job)
	return job, err
}

// jobGone tells whether systemd does not have the job any more. What cannot be asked now is asked again.
func jobGone(ctx context.Context, bus *dbus.Conn, name string, job dbus.ObjectPath) bool {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	props, err := properties(ctx, bus, name)
	if err != nil {
		return false
	}
	current, _ := currentJob(props)
	return current != job
}

// jobResult is the result of the job, if the signal is about its end.
func jobResult(ctx context.Context, bus *dbus.Conn, s *dbus.Signal, job dbus.ObjectPath) (string, error) {
	if s == nil {
		// The library says so before it counts the connection as lost, and the next call would get it again.
		_ = bus.Close() // waits for the end of that
		return "", &reloader.Error{Reason: reloader.Unreachable, Detail: "the bus was lost before the job ended"}
	}
	path, result := parseJobRemoved(s)
	if path != job {
		return "", nil
	}
	// Any user may send a signal that looks like this; only systemd's counts.
	var owner string
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	if err := bus.BusObject().CallWithContext(ctx, "org.freedesktop.DBus.GetNameOwner", 0,
		systemd).Store(&owner); err != nil {
		return "", err
	}
	if s.Sender != owner {
		return "", nil
	}
	return result, nil
}

// parseJobRemoved reads the signal that a job ended; job is empty if it is another one.
func parseJobRemoved(s *dbus.Signal) (job dbus.ObjectPath, result string) {
	var id uint32
	var unit string
	if s.Name != managerIface+".JobRemoved" || dbus.Store(s.Body, &id, &job, &unit, &result) != nil {
		return "", ""
	}
	return job, result
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
	connCtx, cancelConn := context.WithCancel(context.Background())
	stop := context.AfterFunc(ctx, cancelConn)
	bus, err := dial(ctx, connCtx, c.address)
	if !stop() {
		err = errors.New("the bus did not answer in time")
	}
	if err != nil {
		cancelConn()
		return nil, &reloader.Error{Reason: reloader.Unreachable, Detail: err.Error()}
	}
	c.bus = bus
	return bus, nil
}

func dial(ctx, connCtx context.Context, address string) (*dbus.Conn, error) {
	external := dbus.AuthExternal(strconv.Itoa(os.Geteuid()))
	bus, err := dbus.Connect(address, dbus.WithContext(connCtx), dbus.WithAuth(external))
	if err != nil {
		return nil, err
	}
	return bus, bus.AddMatchSignalContext(ctx, dbus.WithMatchSender(systemd),
		dbus.WithMatchInterface(managerIface), dbus.WithMatchMember("JobRemoved"))
}

func unitPath(name string) dbus.ObjectPath {
	return dbus.ObjectPath(managerPath + "/unit/" + sdbus.PathBusEscape(name))
}

// serviceText is a property that only services have.
func serviceText(ctx context.Context, bus *dbus.Conn, name, property string) (string, error) {
	v, err := get(ctx, bus, unitPath(name), serviceIface, property)
	s, _ := v.(string)
	return s, err
}

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
