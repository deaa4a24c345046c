// SPDX-License-Identifier: Apache-2.0

// Package agenttest holds complete in-memory fakes of the agent's neighbours: a host's disk behind
// the writer, systemd, the state directory, the clock, the trail and the reporter.
//
// Each fake behaves as the real one does, and each can be told to fail: Fail is asked before every
// operation and its error becomes the operation's. Fakes are safe for concurrent use. They assert
// nothing; a test looks at what they hold.
package agenttest

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/agent/state"
)

// Clock is a clock that stands still until it is moved.
type Clock struct {
	mu     sync.Mutex
	armed  *sync.Cond
	now    time.Time
	up     time.Duration
	boots  int
	asked  int
	atOnce int
	timers map[chan time.Time]time.Time
}

// NewClock starts at an arbitrary fixed time, on a host that is up for a minute.
func NewClock() *Clock {
	c := &Clock{up: time.Minute, now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC),
		timers: make(map[chan time.Time]time.Time)}
	c.armed = sync.NewCond(&c.mu)
	return c
}

// AwaitTimers returns when at least n timers are waiting for time to pass.
func (c *Clock) AwaitTimers(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.timers) < n {
		c.armed.Wait()
	}
}

// Asked tells how often After was called, and AwaitAsked returns when it was called so often. What
// reads the clock and then arms a timer must not have time move between the two.
func (c *Clock) Asked() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked
}

// AtOnce tells how many of these calls were for no time at all. A loop that makes such a call after each turn
// never rests.
func (c *Clock) AtOnce() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.atOnce
}

// AwaitAsked waits: see Asked.
func (c *Clock) AwaitAsked(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.asked < n {
		c.armed.Wait()
	}
}

// Now implements clock.Clock.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stamp()
}

// stamp gives the time with the uptime for its monotonic reading, as time.Now does: the difference between two
// does not depend on how the clock was set between. Package time has no function for that, and what it keeps
// in a Time is no promise, so the result is checked.
func (c *Clock) stamp() time.Time {
	type layout struct {
		wall uint64
		ext  int64
		loc  *time.Location
	}
	const hasMonotonic = 1 << 63
	seconds := c.now.Unix() - time.Date(1885, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	l := layout{hasMonotonic | uint64(seconds)<<30 | uint64(c.now.Nanosecond()), int64(c.up) + 1, time.UTC}
	t := *(*time.Time)(unsafe.Pointer(&l)) //nolint:gosec // see above
	if !t.Round(0).Equal(c.now) {
		panic("package time keeps a Time in another way now")
	}
	return t
}

// After implements clock.Clock.
func (c *Clock) After(d time.Duration) <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	defer c.armed.Broadcast()
	ch := make(chan time.Time, 1)
	if d <= 0 {
		c.atOnce++
		ch <- c.stamp()
	} else {
		c.timers[ch] = c.now.Add(d)
	}
	return ch
}

// Uptime implements clock.Clock.
func (c *Clock) Uptime() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.up
}

// Boot implements clock.Clock.
func (c *Clock) Boot() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprint("boot", c.boots)
}

// Reboot begins another boot.
func (c *Clock) Reboot() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.up, c.boots = 0, c.boots+1
}

// Set sets the clock, as an administrator would: no time passes.
func (c *Clock) Set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for ch, at := range c.timers {
		c.timers[ch] = at.Add(t.Sub(c.now))
	}
	c.now = t
}

// Move lets d pass: every timer that is due fires.
func (c *Clock) Move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now, c.up = c.now.Add(d), c.up+d
	for ch, t := range c.timers {
		if !t.After(c.now) {
			ch <- c.stamp()
			delete(c.timers, ch)
		}
	}
}

// FileWatcher announces what a test says.
type FileWatcher chan struct{}

// Changed implements agent.FileWatcher.
func (d FileWatcher) Changed() <-chan struct{} { return d }

// Set implements agent.FileWatcher.
func (d FileWatcher) Set([]string) error { return nil }

// Trail keeps audit records.
type Trail struct {
	mu      sync.Mutex
	records []audit.Record
}

// Record implements audit.Recorder.
func (t *Trail) Record(r audit.Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.records = append(t.records, r)
}

// Names lists the kinds recorded so far, in order.
func (t *Trail) Names() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	names := make([]string, len(t.records))
	for i, r := range t.records {
		names[i] = r.Kind.Name
	}
	return names
}

// Reporter passes each status on: a test waits for the end of a reconcile by receiving from it.
type Reporter struct {
	Statuses chan report.Status
	ready    chan struct{}
	alive    atomic.Int64
}

// NewReporter makes a reporter whose statuses have to be received.
func NewReporter() *Reporter {
	return &Reporter{Statuses: make(chan report.Status), ready: make(chan struct{})}
}

// Ready implements agent.Reporter.
func (r *Reporter) Ready() error { close(r.ready); return nil }

// IsReady tells whether Ready was called.
func (r *Reporter) IsReady() <-chan struct{} { return r.ready }

// Alive implements agent.Reporter.
func (r *Reporter) Alive() error { r.alive.Add(1); return nil }

// Answers is how often Alive was called.
func (r *Reporter) Answers() int64 { return r.alive.Load() }

// Publish implements agent.Reporter.
func (r *Reporter) Publish(s report.Status) error { r.Statuses <- s; return nil }

// Dir is a state directory in memory.
type Dir struct {
	mu    sync.Mutex
	files map[string][]byte
	// Fail is asked with the operation and the file's name.
	Fail func(operation, name string) error
}

// NewDir is empty and does not fail.
func NewDir() *Dir {
	return &Dir{files: make(map[string][]byte), Fail: func(string, string) error { return nil }}
}

// ReadFile implements state.Dir.
func (d *Dir) ReadFile(name string) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.Fail("read", name); err != nil {
		return nil, err
	}
	b, ok := d.files[name]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return b, nil
}

// WriteFile implements state.Dir.
func (d *Dir) WriteFile(name string, data []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.Fail("write", name); err != nil {
		return err
	}
	d.files[name] = append([]byte(nil), data...)
	return nil
}

// Rename implements state.Dir.
func (d *Dir) Rename(from, to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.Fail("rename", from); err != nil {
		return err
	}
	d.files[to] = d.files[from]
	delete(d.files, from)
	return nil
}

// Remove implements state.Dir.
func (d *Dir) Remove(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.Fail("remove", name); err != nil {
		return err
	}
	delete(d.files, name)
	return nil
}

// List implements state.Dir.
func (d *Dir) List(subdirectory string) (names []string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.Fail("list", subdirectory); err != nil {
		return nil, err
	}
	for name := range d.files {
		if rest, ok := strings.CutPrefix(name, subdirectory+"/"); ok {
			names = append(names, path.Base(rest))
		}
	}
	return names, nil
}

// Trust answers as a test says, and keeps what it was asked and told.
type Trust struct {
	mu     sync.Mutex
	answer func(subjects []string) (why string, err error)
	Asked  int
	// Used lists the subjects of each set that Use was told.
	Used [][]string
}

// Use implements agent.Trust.
func (t *Trust) Use(certs []pki.Cert) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Used = append(t.Used, subjects(certs))
}

// Prove implements agent.Trust.
func (t *Trust) Prove(_ context.Context, certs []pki.Cert) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Asked++
	if t.answer == nil {
		return "", nil
	}
	return t.answer(subjects(certs))
}

// SetAnswer sets what is answered about certificates of these subjects, also while an agent asks; nil
// verifies everything.
func (t *Trust) SetAnswer(answer func(subjects []string) (string, error)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.answer = answer
}

func subjects(certs []pki.Cert) []string {
	out := make([]string, len(certs))
	for i, c := range certs {
		out[i] = c.Subject
	}
	return out
}

// Operator has the overrides that a test sets. The zero value has none.
type Operator struct {
	mu        sync.Mutex
	overrides state.Overrides
	err       error
}

// Set replaces the overrides. With an error, the parts that w lacks cannot be read.
func (o *Operator) Set(overrides state.Overrides, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.overrides, o.err = overrides, err
}

// Overrides is for agent.Agent.
func (o *Operator) Overrides(last state.Overrides) (state.Overrides, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	w := o.overrides
	if o.err != nil {
		w.Applied, w.Pause = cmp.Or(w.Applied, last.Applied), cmp.Or(w.Pause, last.Pause)
	}
	return w, o.err
}
