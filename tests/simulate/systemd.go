// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
)

// The units of the host. The reader is reloaded and the restarter restarted; the maker is a oneshot that makes
// of a bundle what the restarter loads besides.
const (
	reader    = "reader.service"
	restarter = "restarter.service"
	maker     = "maker.service"
)

var unitNames = []string{maker, reader, restarter}

// systemd is the service manager.
type systemd struct {
	*env
	units map[string]*unit
	jobs  []*job
	runs  int
	// fails and pace are how jobs go from now on.
	fails float64
	pace  pace
	// foreign is set if somebody else ran the maker last, or a file changed meanwhile, or nobody saw the end, or what
	// loads its product did not wait for it any more, so that the agent cannot know what there is.
	foreign bool
}

// nearby is how near to a start a change of a file may have been read or not: the kernel's clock for files is
// coarse, and the agent allows for a second.
const nearby = 1200 * time.Millisecond

// pace is how long the stages of a job take.
type pace string

// The paces of jobs.
const (
	quick pace = "quick"
	slow  pace = "slow"
	stuck pace = "stuck"
)

// unit is one service.
type unit struct {
	name             string
	verb             unitplan.Verb
	active, failed   bool
	boot, invocation string
	since            time.Time
	started, mono    time.Duration // in the clock's lived and mono
	loaded           *reading      // nil: it has read nothing in this run
	early            bool          // it was started before what it loads was made of what was on disk
	behind           bool          // what it was started with was not made of what was on disk
	product          string        // of the maker: what its last good run made
	made             int           // the boot of that run
	// it is called loaded because of the times of files and of its start, and a clock was set
	byTime bool
	// what it had read before somebody reloaded it, and whether somebody put that back on disk since: two hands that
	// undo each other between two looks of the agent leave no trace
	before *reading
	undone bool
	// fresh is set since it read its files until /var/lib took a change, and forgotten if the agent ended meanwhile and
	// could not write there: what it has remembered is older than what the unit has
	fresh, forgotten bool

	excuse string // why one more action may be needless
	tries  []try
}

// reading is what a unit read at one moment.
type reading struct {
	files   map[string]*file
	product string
}

// job is one action under way.
type job struct {
	unit  *unit
	verb  unitplan.Verb
	call  *call // who waits for it; nil if nobody does
	fails bool
	// start, read and end are when a new run begins, files are read and the job is over, in the clock's mono.
	start, read, end time.Duration
	before, after    bool // the run has begun; the files are read
	touched          bool // a file changed meanwhile
	got              *reading
	inputs           string
}

// try is one action and its outcome.
type try struct {
	at     time.Duration
	life   int // of the agent
	inputs string
	failed bool
}

func newSystemd(w *env) systemd {
	s := systemd{env: w, units: make(map[string]*unit), pace: quick}
	for _, name := range unitNames {
		verb := map[string]unitplan.Verb{reader: unitplan.Reload, restarter: unitplan.TryRestart,
			maker: unitplan.Restart}[name]
		u := &unit{name: name, verb: verb}
		if s.units[name] = u; name != maker && w.setting.Units {
			s.begins(u)
			s.reads(u, s.look())
		}
	}
	return s
}

// begins is the start of a run.
func (s *systemd) begins(u *unit) {
	s.runs++
	u.active, u.failed, u.boot, u.invocation, u.since = true, false, s.clock.boot(), fmt.Sprint("run ", s.runs),
		s.clock.wall().Truncate(time.Microsecond)
	u.started, u.mono, u.loaded, u.early, u.behind = s.clock.lived, s.clock.mono, nil, false, false
}

// look is what whoever reads now gets.
func (s *systemd) look() *reading {
	return &reading{files: maps.Clone(s.disk.files), product: s.units[maker].productNow()}
}

func (u *unit) productNow() string {
	if u == nil {
		return ""
	}
	return u.product
}

func (s *systemd) reads(u *unit, r *reading) {
	u.loaded, u.byTime, u.before, u.undone, u.fresh, u.forgotten = r, false, nil, false, true, false
}

// busy gives the job of a unit, if it has one.
func (s *systemd) busy(name string) *job {
	if i := slices.IndexFunc(s.jobs, func(j *job) bool { return j.unit.name == name }); i >= 0 {
		return s.jobs[i]
	}
	return nil
}

func (s *systemd) state(u *unit) unitplan.State {
	return unitplan.State{Exists: true, Active: u.active, Failed: u.failed, Busy: s.busy(u.name) != nil,
		Boot: s.clock.boot(), Invocation: u.invocation,
		Since: u.since, SinceUptime: u.mono, StartBurst: 5, StartInterval: 10 * time.Second}
}

// State implements unitactions.Systemd.
func (s *systemd) State(_ context.Context, name string) (unitplan.State, error) {
	if before, after := s.meet(asking); before != nil || after != nil {
		return unitplan.State{}, errors.Join(before, after)
	}
	u := s.units[name]
	if u == nil {
		return unitplan.State{}, nil
	}
	return s.state(u), nil
}

// Affected implements unitactions.Systemd.
func (s *systemd) Affected(context.Context, unitplan.Unit) ([]string, error) { return nil, nil }

// Act implements unitactions.Systemd. It waits until the job has ended, and leaves everything else to the walk.
func (s *systemd) Act(_ context.Context, u unitplan.Unit) (unitplan.State, error) {
	c := &call{unit: u}
	s.agent.await(c)
	return c.after, c.err
}

// begin has systemd take up what the agent asked for.
func (s *systemd) begin(c *call) {
	before, after := s.meet(acting)
	u := s.units[c.unit.Name]
	if n := len(u.tries); n > 0 && u.tries[n-1].inputs != s.model.visible(s.env, u.name) {
		u.tries = nil // whatever becomes of it: from now on failures are those of other files
	}
	if before != nil {
		s.logf("  %s %s does not reach systemd", c.unit.Verb, u.name)
		c.err = lost{}
		s.model.excuse(u, "the bus was lost")
		s.agent.answer(c)
		return
	}
	s.counts.Actions++
	if s.model.others != s.model.begun {
		s.model.excuse(u, "somebody changed something at the moment of an action")
	}
	s.model.acting(s.env, u)
	j := s.newJob(u, c.unit.Verb)
	s.logf("  systemd begins to %s %s: it reads %v and ends %v from now", j.verb, u.name, j.read-s.clock.mono,
		j.end-s.clock.mono)
	if j.call = c; after != nil {
		s.leave(j, "the bus was lost")
	}
	s.work()
}

// leave has the agent lose sight of a job, which goes on.
func (s *systemd) leave(j *job, why string) {
	c := j.call
	j.call, c.err = nil, lost{}
	s.model.excuse(j.unit, why)
	s.agent.answer(c)
}

// newJob draws how a job will go.
func (s *systemd) newJob(u *unit, verb unitplan.Verb) *job {
	rng := s.draw("job "+u.name, s.runs*1000+len(u.tries))
	took := func() time.Duration {
		switch s.pace {
		case stuck:
			return 40 * time.Minute
		case slow:
			return time.Duration(rng.IntN(45000)) * time.Millisecond
		}
		return []time.Duration{0, 10 * time.Millisecond, 300 * time.Millisecond, 2 * time.Second}[rng.IntN(4)]
	}
	j := &job{unit: u, verb: verb, fails: rng.Float64() < s.fails, start: s.clock.mono}
	if verb == unitplan.TryRestart {
		j.start += took()
	}
	j.read = j.start + took()
	j.end = j.read + took()
	j.inputs = s.model.visible(s.env, u.name)
	s.jobs = append(s.jobs, j)
	return j
}

// next is when the next stage of a job is due.
func (s *systemd) next() (at time.Duration, ok bool) {
	for _, j := range s.jobs {
		if due := j.due(); !ok || due < at {
			at, ok = due, true
		}
	}
	return at, ok
}

func (j *job) due() time.Duration {
	switch {
	case !j.before:
		return j.start
	case !j.after:
		return j.read
	}
	return j.end
}

// work does what is due, and tells whether there was anything. Who waits for it hears of it later.
func (s *systemd) work() (did bool) {
	for {
		i := slices.IndexFunc(s.jobs, func(j *job) bool { return j.due() <= s.clock.mono })
		if i < 0 {
			return did
		}
		s.stage(s.jobs[i])
		did = true
	}
}

// stage takes a job one step further.
func (s *systemd) stage(j *job) {
	u := j.unit
	switch {
	case !j.before:
		if j.before = true; j.verb.Starts() && (u.active || j.verb == unitplan.Restart) {
			s.begins(u)
		}
	case !j.after:
		if j.after = true; u.active {
			j.got = s.look()
			s.logf("  %s reads its files", u.name)
			if u.verb != unitplan.Restart {
				s.reads(u, j.got)
			}
		}
	default:
		s.finish(j)
	}
}

// finish ends a job.
func (s *systemd) finish(j *job) {
	u := j.unit
	s.jobs = slices.DeleteFunc(s.jobs, func(o *job) bool { return o == j })
	var err error
	switch {
	case j.fails:
		err = errors.New("the job's result is failed")
		if j.verb.Starts() {
			u.active, u.failed, u.loaded = false, true, nil
		}
	case !u.active:
		err = errors.New("the job is done and the unit is inactive")
	case u.verb == unitplan.Restart:
		u.active, u.made = false, s.clock.boots
		if s.foreign {
			s.model.excuse(s.units[restarter], "nobody could know what the oneshot had made that it loads")
		}
		s.foreign = j.touched || j.call == nil
		if s.reads(u, j.got); j.got != nil {
			s.makes(u, s.model.inputs(s.env, maker, j.got.files))
		}
	}
	if err != nil {
		s.model.excuse(u, "an action of it failed")
	}
	if j.call != nil { // else the agent does not know
		u.tries = append(u.tries, try{s.clock.lived, s.agent.life, j.inputs, err != nil})
	}
	s.logf("  the job of %s ends: %v", u.name, orDone(err))
	if c := j.call; c != nil {
		if c.err = err; err == nil {
			c.after = s.state(u)
		}
		s.agent.answer(c)
	}
}

// makes is what a run of the maker made. If it goes back to what the restarter has loaded, the agent has that loaded
// once more: it remembers of the restarter that it had something new to load, and not what it had before.
func (s *systemd) makes(u *unit, product string) {
	r := s.units[restarter]
	if product != u.product && r.loaded != nil && r.loaded.product == product {
		s.model.excuse(r, "the oneshot made something else in between")
	}
	u.product = product
}

func orDone(err error) any {
	if err == nil {
		return "done"
	}
	return err
}

// abandon is the end of the agent: its jobs go on, and nobody waits for them.
func (s *systemd) abandon() {
	for _, j := range s.jobs {
		if c := j.call; c != nil {
			j.call, c.err = nil, errKilled
			close(c.end)
		}
	}
}

// touched notes that a file changed while jobs that may read it are under way, or so soon after a unit began that
// nobody can tell what it read, or before the agent has looked at a unit since that began: by the file's time alone
// the unit reads something older.
func (s *systemd) touched(p string) {
	for _, name := range unitNames {
		u := s.units[name]
		switch {
		case u == nil || !s.model.concerns(s.env, name, p):
		case s.clock.lived-u.started < nearby:
			s.model.excuse(u, "a file changed right after it began")
		case u.started >= s.model.looked: // at the same moment it may have been after the look
			s.model.excuse(u, "a file changed before the agent saw that it began")
		}
	}
	for _, j := range s.jobs {
		if s.model.concerns(s.env, j.unit.name, p) {
			j.touched = true
			s.model.excuse(j.unit, "a file changed while an action of it was under way")
		}
	}
}

// reboots ends everything that runs.
func (s *systemd) reboots() {
	s.jobs = nil
	for _, u := range s.units {
		u.active, u.failed, u.boot, u.invocation, u.since, u.mono, u.loaded = false, false, "", "", time.Time{}, 0, nil
	}
}

// boots starts what is started at boot.
func (s *systemd) boots() {
	if !s.setting.Units {
		return
	}
	for _, name := range []string{reader, restarter} {
		u := s.units[name]
		s.begins(u)
		s.reads(u, s.look())
		u.tries = nil // another run may fare better
		if s.model.near(s.env, u) {
			s.model.excuse(u, "it was started near a change")
		}
		u.behind = s.unmade()
	}
}

// unmade tells whether the maker has yet to run with what is on disk.
func (s *systemd) unmade() bool {
	return s.units[maker].product != s.model.inputs(s.env, maker, s.disk.files)
}

// forgive forgets which actions failed.
func (s *systemd) forgive() {
	for _, u := range s.units {
		u.tries = nil
	}
}

// gaveUp tells whether the agent has those that load what the maker makes wait for it no more.
func (s *systemd) gaveUp() bool {
	return slices.ContainsFunc(s.agent.status.Units, func(u report.Unit) bool {
		return u.Name == maker && u.State == "breaker open"
	})
}

// failing tells whether the last action of some unit failed: then it may take a while until the next.
func (s *systemd) failing() bool {
	for _, u := range s.agent.status.Units {
		if u.State == "breaker open" || u.State == "failed" {
			return true
		}
	}
	for _, u := range s.units {
		if n := len(u.tries); n > 0 && u.tries[n-1].failed {
			return true
		}
	}
	return false
}
