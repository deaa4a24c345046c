// SPDX-License-Identifier: Apache-2.0

package units

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
)

// fakeUnit is a unit as the fake systemd has it. The zero value was not found.
type fakeUnit struct {
	active, sub  string
	invocation   byte
	since        time.Time
	cannotReload bool
	load         string // LoadState; empty means loaded
	kind, result string // Type and Result of a service
	more         map[string]any
	// act is called for each job in place of the usual "done".
	act func(u *fakeUnit) (result string)
	// deny is the name of the error that a job is answered with.
	deny string
	// job, if not nil, is what a job waits for before it ends.
	job chan struct{}
	// lost has the end of a job announced to nobody.
	lost bool
	// running is the unit's job.
	running int
	// alias is the name of the unit if it is asked about by another.
	alias string
}

// fakeBus is a message bus with systemd on it, complete as far as this package can see: it speaks
// the D-Bus protocol over a socket, queues jobs and announces their ends.
type fakeBus struct {
	t       testing.TB
	path    string
	started chan string // methods called, with the unit: "ReloadUnit a.service"

	mu       sync.Mutex
	listener net.Listener
	clients  map[*fakeClient]bool
	units    map[string]*fakeUnit
	jobs     int
	says     map[string]string // properties of the manager, by interface
	// forge sends a false end of each job, as any user of a bus can, before the job begins.
	forge bool
	// early announces the end of a job before its path is answered.
	early bool
}

const owner = ":1.1"

func newFakeBus(t testing.TB, units map[string]*fakeUnit) *fakeBus {
	t.Helper()
	// The name of a test can be too long for the path of a socket.
	dir, err := os.MkdirTemp("", "bus")
	if err != nil {
		t.Fatal(err)
	}
	b := &fakeBus{t: t, path: filepath.Join(dir, "bus"), units: units, started: make(chan string, 100)}
	b.start()
	t.Cleanup(func() {
		b.stop()
		os.RemoveAll(dir)
	})
	return b
}

func (b *fakeBus) address() string { return "unix:path=" + b.path }

func (b *fakeBus) start() {
	b.t.Helper()
	l, err := net.Listen("unix", b.path)
	if err != nil {
		b.t.Fatal(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.listener, b.clients = l, map[*fakeClient]bool{}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			c := &fakeClient{bus: b, conn: conn}
			b.mu.Lock()
			b.clients[c] = true
			b.mu.Unlock()
			go c.serve()
		}
	}()
}

// stop ends the bus and all its connections, as a restart of dbus.service does.
func (b *fakeBus) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.listener.Close()
	for c := range b.clients {
		c.conn.Close()
	}
}

// fakeClient is the bus's end of one connection.
type fakeClient struct {
	bus  *fakeBus
	conn net.Conn
	mu   sync.Mutex // one message at a time
}

func (c *fakeClient) serve() {
	defer c.conn.Close()
	r := bufio.NewReader(c.conn)
	if !c.authenticate(r) {
		return
	}
	for {
		msg, err := dbus.DecodeMessage(r)
		if err != nil {
			return
		}
		go c.call(msg)
	}
}

// authenticate is the server's side of the EXTERNAL mechanism.
func (c *fakeClient) authenticate(r *bufio.Reader) bool {
	if nul, err := r.ReadByte(); err != nil || nul != 0 {
		return false
	}
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return false
		}
		answer := "ERROR\r\n"
		switch strings.TrimSpace(line) {
		case "BEGIN":
			return true
		case "AUTH":
			answer = "REJECTED EXTERNAL\r\n"
		case "AUTH EXTERNAL":
			answer = "DATA\r\n"
		case "DATA": // no identity but that of the socket
			answer = "OK 0123456789abcdef0123456789abcdef\r\n"
		}
		if _, err := io.WriteString(c.conn, answer); err != nil {
			return false
		}
	}
}

func (c *fakeClient) send(m *dbus.Message, body ...any) {
	m.Body = body
	if len(body) > 0 {
		m.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(body...))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := m.EncodeTo(c.conn, binary.LittleEndian); err != nil && !strings.Contains(err.Error(), "closed") {
		c.bus.t.Logf("fake bus: %v", err)
	}
}

func (c *fakeClient) reply(call *dbus.Message, body ...any) {
	c.send(&dbus.Message{Type: dbus.TypeMethodReply, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldReplySerial: dbus.MakeVariant(call.Serial()),
		dbus.FieldSender:      dbus.MakeVariant(owner),
	}}, body...)
}

func (c *fakeClient) fail(call *dbus.Message, name, words string) {
	c.send(&dbus.Message{Type: dbus.TypeError, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldReplySerial: dbus.MakeVariant(call.Serial()),
		dbus.FieldErrorName:   dbus.MakeVariant(name),
		dbus.FieldSender:      dbus.MakeVariant(owner),
	}}, words)
}

func (c *fakeClient) jobRemoved(sender string, id int, unit, result string) {
	c.send(&dbus.Message{Type: dbus.TypeSignal, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldPath:      dbus.MakeVariant(dbus.ObjectPath(managerPath)),
		dbus.FieldInterface: dbus.MakeVariant(managerIface),
		dbus.FieldMember:    dbus.MakeVariant("JobRemoved"),
		dbus.FieldSender:    dbus.MakeVariant(sender),
	}}, uint32(id), jobPath(id), unit, result)
}

func jobPath(id int) dbus.ObjectPath {
	return dbus.ObjectPath(fmt.Sprintf("%s/job/%d", managerPath, id))
}

func (c *fakeClient) call(m *dbus.Message) {
	header := func(f dbus.HeaderField) string { return fmt.Sprint(m.Headers[f].Value()) }
	switch member := header(dbus.FieldMember); member {
	case "Hello":
		c.reply(m, ":1.42")
	case "AddMatch":
		c.reply(m)
	case "GetNameOwner":
		c.reply(m, owner)
	case "GetAll":
		c.properties(m, header(dbus.FieldPath))
	case "Get":
		c.serviceProperty(m, header(dbus.FieldPath))
	case "ReloadUnit", "TryRestartUnit", "RestartUnit":
		c.job(m, member, m.Body[0].(string), m.Body[1].(string))
	default:
		c.fail(m, "org.freedesktop.DBus.Error.UnknownMethod", member)
	}
}

// unit finds the unit whose object this is. systemd's own escaping of this test's names: only "." and
// "-" need any.
func (b *fakeBus) unit(path string) (string, *fakeUnit) {
	for name, u := range b.units {
		if strings.HasSuffix(path, "/"+strings.NewReplacer(".", "_2e", "-", "_2d").Replace(name)) {
			return cmp.Or(u.alias, name), u
		}
	}
	return "", nil
}

func (c *fakeClient) properties(m *dbus.Message, path string) {
	c.bus.mu.Lock()
	defer c.bus.mu.Unlock()
	values := map[string]any{"LoadState": "not-found", "ActiveState": "inactive", "SubState": "dead",
		"InvocationID": []byte{}, "InactiveExitTimestamp": uint64(0)}
	if name, u := c.bus.unit(path); u != nil {
		values["LoadState"], values["Id"] = cmp.Or(u.load, "loaded"), name
		if u.running > 0 {
			values["Job"] = job{uint32(u.running), jobPath(u.running)}
		}
		values["ActiveState"], values["SubState"] = cmp.Or(u.active, "inactive"), u.sub
		if u.invocation != 0 {
			values["InvocationID"] = []byte(strings.Repeat(string(rune(u.invocation)), 16))
			values["InactiveExitTimestamp"] = uint64(u.since.UnixMicro())
		}
		maps.Copy(values, u.more)
	}
	props := map[string]dbus.Variant{}
	for name, v := range values {
		props[name] = dbus.MakeVariant(v)
	}
	c.reply(m, props)
}

func (c *fakeClient) serviceProperty(m *dbus.Message, path string) {
	c.bus.mu.Lock()
	defer c.bus.mu.Unlock()
	_, u := c.bus.unit(path)
	name := m.Body[1].(string)
	if version, ok := c.bus.says[m.Body[0].(string)]; ok && name == "Version" {
		c.reply(m, dbus.MakeVariant(version))
		return
	}
	if iface := m.Body[0]; u == nil || iface != serviceIface {
		c.fail(m, "org.freedesktop.DBus.Error.UnknownProperty", fmt.Sprint(iface))
		return
	}
	if pid, ok := u.more[name]; ok {
		c.reply(m, dbus.MakeVariant(pid))
		return
	}
	c.reply(m, dbus.MakeVariant(map[string]string{"Type": u.kind, "Result": u.result}[name]))
}

func (c *fakeClient) job(m *dbus.Message, method, name, mode string) {
	b := c.bus
	b.mu.Lock()
	b.jobs++
	id, u := b.jobs, b.units[name]
	if u != nil {
		u.running = id
	}
	b.mu.Unlock()
	b.started <- method + " " + name
	switch {
	case mode != "fail":
		c.fail(m, "org.freedesktop.DBus.Error.InvalidArgs", "mode "+mode)
		return
	case u == nil:
		c.fail(m, "org.freedesktop.systemd1.NoSuchUnit", "Unit "+name+" not found.")
		return
	case u.deny != "":
		c.fail(m, u.deny, "Permission denied")
		return
	case method == "ReloadUnit" && u.cannotReload:
		c.fail(m, "org.freedesktop.systemd1.JobTypeNotApplicable", "Job type reload is not applicable for unit "+name+".")
		return
	}
	if b.forge {
		c.jobRemoved(":1.66", id, name, "done")
	}
	if !b.early {
		c.reply(m, jobPath(id))
	}
	c.jobRemoved(owner, id+1000, "other.service", "failed")
	if u.job != nil {
		<-u.job
	}
	result := "done"
	b.mu.Lock()
	if u.act != nil {
		result = u.act(u)
	}
	if !u.lost {
		c.jobRemoved(owner, id, name, result)
	}
	u.running = 0 // nobody can ask between the announcement and this: systemd has one thread
	b.mu.Unlock()
	if b.early {
		c.reply(m, jobPath(id))
	}
}
