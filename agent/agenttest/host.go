// SPDX-License-Identifier: Apache-2.0

package agenttest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// Disk is the managed part of a host's file system behind a writer.
type Disk struct {
	mu    sync.Mutex
	rows  plan.Policy
	clock *Clock
	files map[string]content
	// Fail is asked with the operation: observe, commit or sweep, and for each file of a commit
	// stage or rename with its path.
	Fail func(operation, path string) error
	// Commits and Observations count successful requests, Looks the files that were observed, and
	// Bytes the content that this moved.
	Commits, Observations, Looks, Bytes int
}

type content struct {
	file plan.File
	data []byte
}

// NewDisk is empty.
func NewDisk(p plan.Policy, c *Clock) *Disk {
	return &Disk{rows: p, clock: c, files: make(map[string]content), Fail: func(string, string) error { return nil }}
}

// Put lays down a file as somebody else would.
func (d *Disk) Put(path, data string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.put(path, []byte(data), plan.Row{Mode: 0o644})
}

func (d *Disk) put(path string, data []byte, r plan.Row) {
	d.files[path] = content{data: append([]byte(nil), data...), file: plan.File{Kind: plan.Regular, Digest: plan.DigestOf(data),
		Mode: r.Mode, UID: r.UID, GID: r.GID, Changed: d.clock.Now()}}
}

// Delete removes a file as somebody else would.
func (d *Disk) Delete(path string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.files, path)
}

// Read gives a file's content; ok is false if there is none.
func (d *Disk) Read(path string) (data string, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c, ok := d.files[path]
	return string(c.data), ok
}

func (d *Disk) path(k plan.Key) (plan.Row, string, error) {
	row, ok := d.rows.Row(k.Row)
	if !ok {
		return row, "", fmt.Errorf("no row %s", k.Row)
	}
	p, err := row.Path(k.Name)
	return row, p, err
}

// Observe implements agent.Writer.
func (d *Disk) Observe(_ context.Context, queries []plan.Query) ([]plan.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.Fail("observe", ""); err != nil {
		return nil, err
	}
	d.Observations++
	d.Looks += len(queries)
	out := make([]plan.File, len(queries))
	for i, q := range queries {
		_, p, err := d.path(q.Key)
		if err != nil {
			out[i] = plan.File{Kind: plan.Unreadable, Reason: err.Error()}
			continue
		}
		c := d.files[p]
		out[i] = c.file
		if c.file.Kind == plan.Regular && c.file.Digest != q.Known {
			out[i].Data = c.data
			d.Bytes += len(c.data)
		}
	}
	return out, nil
}

// Commit implements agent.Writer: all is staged before anything is renamed.
func (d *Disk) Commit(_ context.Context, c plan.Commit) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range c.Writes {
		_, p, err := d.path(w.Key)
		if err = errors.Join(err, d.Fail("stage", p)); err != nil {
			return err
		}
	}
	for _, w := range c.Writes {
		row, p, _ := d.path(w.Key)
		if err := d.Fail("rename", p); err != nil {
			return err
		}
		d.put(p, w.Data, row)
	}
	for _, r := range c.Removals {
		_, p, err := d.path(r.Key)
		if err != nil {
			return err
		}
		if d.files[p].file.Digest == r.Digest {
			delete(d.files, p)
		}
	}
	if err := d.Fail("commit", ""); err != nil {
		return err
	}
	d.Commits++
	return nil
}

// Sweep implements agent.Writer. The twin leaves nothing behind.
func (d *Disk) Sweep(context.Context) ([]string, error) { return nil, d.Fail("sweep", "") }

// Systemd is a service manager. Units come into being with Start.
type Systemd struct {
	mu    sync.Mutex
	clock *Clock
	units map[string]*plan.UnitState
	runs  int
	// Fail is asked with the operation, state or the verb, and the unit.
	Fail func(operation, unit string) error
	// Load is called whenever a unit reads its files: when it starts and when it is reloaded.
	Load func(unit string)
	// Jobs lists the actions that were done, as "verb unit".
	Jobs []string
}

// NewSystemd has no units.
func NewSystemd(c *Clock) *Systemd {
	return &Systemd{clock: c, units: make(map[string]*plan.UnitState), Fail: func(string, string) error { return nil }, Load: func(string) {}}
}

// Start starts a unit, or restarts it: a new invocation, from now.
func (s *Systemd) Start(unit string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.start(unit)
}

func (s *Systemd) start(unit string) {
	s.runs++
	s.units[unit] = &plan.UnitState{Active: true, Boot: "boot", Invocation: fmt.Sprint("run", s.runs), Since: s.clock.Now()}
	s.Load(unit)
}

// Done is a copy of Jobs.
func (s *Systemd) Done() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.Jobs...)
}

// State implements agent.Units.
func (s *Systemd) State(_ context.Context, unit string) (plan.UnitState, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.Fail("state", unit); err != nil {
		return plan.UnitState{}, err
	}
	if u := s.units[unit]; u != nil {
		return *u, nil
	}
	return plan.UnitState{}, nil
}

// Act implements agent.Units.
func (s *Systemd) Act(_ context.Context, u plan.Unit) (plan.UnitState, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.Fail(string(u.Verb), u.Name); err != nil {
		return plan.UnitState{}, err
	}
	if s.units[u.Name] == nil {
		return plan.UnitState{}, errors.New("unit not loaded")
	}
	s.clock.Move(time.Millisecond)
	if u.Verb == plan.TryRestart {
		s.start(u.Name)
	} else {
		s.Load(u.Name)
	}
	s.Jobs = append(s.Jobs, fmt.Sprintf("%s %s", u.Verb, u.Name))
	return *s.units[u.Name], nil
}
