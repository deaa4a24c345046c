// SPDX-License-Identifier: Apache-2.0

package agenttest

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
)

// Disk is the managed part of a host's file system behind a writer.
type Disk struct {
	mu     sync.Mutex
	policy plan.Policy
	clock  *Clock
	files  map[string]content
	links  map[string]string
	odd    map[string]plan.FileKind
	// Fail is asked with the operation: observe, commit or sweep, and for each file of a commit
	// stage, rename or remove with its path.
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
	return &Disk{policy: p, clock: c, files: make(map[string]content), links: make(map[string]string),
		odd: make(map[string]plan.FileKind), Fail: func(string, string) error { return nil }}
}

// Put lays down a file as somebody else would.
func (d *Disk) Put(path, data string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.put(path, []byte(data), plan.FileSpec{Mode: 0o644})
}

func (d *Disk) put(path string, data []byte, r plan.FileSpec) {
	d.files[path] = content{data: append([]byte(nil), data...), file: plan.File{Kind: plan.Regular,
		Digest: plan.DigestOf(data),
		Mode:   r.Mode, UID: r.UID, GID: r.GID, Changed: d.clock.Now().Round(0)}}
}

// Link makes a link at path, which only files that may be links do not refuse.
func (d *Disk) Link(path, target string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.links[path] = target
}

// Delete removes a file as somebody else would.
func (d *Disk) Delete(path string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.files, path)
}

// Obstruct has nobody see the file at a path any more: it is irregular, or cannot be read. With Absent it is
// again what it was.
func (d *Disk) Obstruct(path string, kind plan.FileKind) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.odd[path] = kind
	if kind == plan.Absent {
		delete(d.odd, path)
	}
}

// Read gives a file's content; ok is false if there is none.
func (d *Disk) Read(path string) (data string, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c, ok := d.files[path]
	return string(c.data), ok
}

func (d *Disk) path(k plan.Key) (plan.FileSpec, string, error) {
	spec, ok := d.policy.File(k.Field)
	if !ok {
		return spec, "", fmt.Errorf("no field %s", k.Field)
	}
	p, err := spec.PathOf(k.Name)
	if target, ok := d.links[p]; ok && spec.FollowLink {
		p = target
	}
	return spec, p, err
}

// Observe implements files.Writer.
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
		spec, p, err := d.path(q.Key)
		if err != nil {
			out[i] = plan.File{Kind: plan.Unreadable, Reason: err.Error()}
			continue
		}
		if kind := d.odd[p]; kind != "" {
			out[i] = plan.File{Kind: kind, Reason: "it is " + string(kind)}
			continue
		}
		c := d.files[p]
		out[i] = c.file
		if place, _ := spec.PathOf(q.Name); place != p {
			out[i].Directory = path.Dir(p)
		}
		if c.file.Kind == plan.Regular && c.file.Digest != q.Known {
			out[i].Data = c.data
			d.Bytes += len(c.data)
		}
	}
	return out, nil
}

// untouched is an error of a commit that changed nothing.
type untouched struct{ error }

func (untouched) NothingChanged() bool { return true }

// Commit implements files.Writer: all is staged before anything is renamed.
func (d *Disk) Commit(_ context.Context, c plan.Commit) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range c.Writes {
		_, p, err := d.path(w.Key)
		if err = errors.Join(err, d.Fail("stage", p)); err != nil {
			return untouched{err}
		}
		if kind := d.odd[p]; kind != "" {
			return fmt.Errorf("%s is %s", p, kind)
		}
	}
	for _, w := range c.Writes {
		spec, p, _ := d.path(w.Key)
		if err := d.Fail("rename", p); err != nil {
			return err
		}
		d.put(p, w.Data, spec)
	}
	for _, r := range c.Removals {
		_, p, err := d.path(r.Key)
		if err != nil {
			return err
		}
		if err := d.Fail("remove", p); err != nil {
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

// Sweep implements files.Writer. The fake leaves nothing behind.
func (d *Disk) Sweep(context.Context) ([]string, error) { return nil, d.Fail("sweep", "") }

// Systemd is a service manager. Units come into being with Install and Start.
type Systemd struct {
	mu    sync.Mutex
	clock *Clock
	units map[string]*unit
	runs  int
	boots int
	// changed is told when a job begins or ends.
	changed sync.Cond
	// Fail is asked with the operation, state or the verb, and the unit.
	Fail func(operation, unit string) error
	// Load is called whenever a unit reads its files: when it starts and when it is reloaded.
	Load func(unit string)
	// Hold is called in each job, which lasts until it returns.
	Hold func(unit string)
	// Early has units read their files at the beginning of a job, else they do at its end: systemd promises
	// neither.
	Early bool
	// Propagates is what systemd acts on along with a unit.
	Propagates map[string][]string
	// Jobs lists the actions that were done, as "verb unit".
	Jobs []string
}

type unit struct {
	unitplan.State
	oneshot bool
	starts  []time.Duration
}

// NewSystemd has no units.
func NewSystemd(c *Clock) *Systemd {
	s := &Systemd{clock: c, units: make(map[string]*unit), Fail: func(string, string) error { return nil },
		Load: func(string) {}, Hold: func(string) {}, Propagates: make(map[string][]string)}
	s.changed.L = &s.mu
	return s
}

// Install makes a oneshot known that has not run, and is inactive after each run.
func (s *Systemd) Install(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.units[name] = &unit{oneshot: true, State: unitplan.State{Exists: true, Boot: s.boot()}}
}

// Reboot ends every run. Nothing is started again by itself.
func (s *Systemd) Reboot() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.boots++
	for _, u := range s.units {
		u.State = unitplan.State{Exists: true, Boot: s.boot(), StartBurst: u.StartBurst, StartInterval: u.StartInterval}
	}
}

func (s *Systemd) boot() string { return fmt.Sprint("boot", s.boots) }

// Limit lets the unit fail that is started more than burst times within interval.
func (s *Systemd) Limit(name string, burst int, interval time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.units[name].StartBurst, s.units[name].StartInterval = burst, interval
}

// Start starts a unit, or restarts it: a new invocation, from now.
func (s *Systemd) Start(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.units[name] == nil {
		s.units[name] = &unit{}
	}
	if s.start(name) {
		s.Load(name)
	}
}

// start begins a run, unless the limit is reached. A oneshot is active until somebody ends the run.
func (s *Systemd) start(name string) bool {
	u, now, up := s.units[name], s.clock.Now().Round(0), s.clock.Uptime()
	u.starts = slices.DeleteFunc(append(u.starts, up), func(t time.Duration) bool { return up-t > u.StartInterval })
	s.runs++
	u.Exists, u.Active, u.Failed, u.Since, u.SinceUptime = true, true, false, now, up
	u.Boot, u.Invocation = s.boot(), fmt.Sprint("run", s.runs)
	if u.StartBurst > 0 && len(u.starts) > u.StartBurst {
		u.Active, u.Failed = false, true
	}
	return u.Active
}

// Done is a copy of Jobs.
func (s *Systemd) Done() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.Jobs...)
}

// State implements unitactions.Systemd.
func (s *Systemd) State(_ context.Context, name string) (unitplan.State, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.Fail("state", name); err != nil {
		return unitplan.State{}, err
	}
	if u := s.units[name]; u != nil {
		return u.State, nil
	}
	return unitplan.State{}, nil
}

// Affected implements unitactions.Systemd.
func (s *Systemd) Affected(_ context.Context, u unitplan.Unit) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Propagates[u.Name], nil
}

// Act implements unitactions.Systemd.
func (s *Systemd) Act(_ context.Context, u unitplan.Unit) (unitplan.State, error) {
	s.busy(u.Name, true)
	s.begin(u)
	s.Hold(u.Name)
	s.busy(u.Name, false)
	s.mu.Lock()
	defer s.mu.Unlock()
	have := s.units[u.Name]
	if err := s.Fail(string(u.Verb), u.Name); err != nil {
		if have != nil && have.oneshot {
			have.Active, have.Failed = false, true
		}
		return unitplan.State{}, err
	}
	if have == nil {
		return unitplan.State{}, errors.New("unit not loaded")
	}
	if !s.Early {
		s.work(u, have)
	}
	s.Jobs = append(s.Jobs, fmt.Sprintf("%s %s", u.Verb, u.Name))
	if have.Failed {
		return unitplan.State{}, errors.New("the job is done and the unit is failed (start-limit-hit)")
	}
	have.Active = have.Active && !have.oneshot
	return have.State, nil
}

// begin is what a job does before it is held: a oneshot runs from then on.
func (s *Systemd) begin(u unitplan.Unit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	have := s.units[u.Name]
	if have == nil {
		return
	}
	if have.oneshot {
		s.clock.Move(time.Millisecond)
		s.start(u.Name)
	}
	if s.Early {
		s.work(u, have)
	}
}

// work is what a job is for.
func (s *Systemd) work(u unitplan.Unit, have *unit) {
	s.clock.Move(time.Millisecond)
	if have.oneshot && have.Active || !have.oneshot && (!u.Verb.Starts() || s.start(u.Name)) {
		s.Load(u.Name)
	}
}

func (s *Systemd) busy(name string, is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if u := s.units[name]; u != nil {
		u.Busy = is
	}
	s.changed.Broadcast()
}

// AwaitIdle returns when no job of the unit is under way.
func (s *Systemd) AwaitIdle(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.units[name].Busy {
		s.changed.Wait()
	}
}
