// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/node-cert-agent/node-cert-agent/agent"
	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/desired"
	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
)

// process is the agent's process. The loop is a coroutine of the walk: it runs until it asks the clock for its
// next timer, which it does when it has nothing left to do. Then the walk makes exactly one event ready, and
// lets it run again. So there is one order of things, which the seed decides.
type process struct {
	w       *env
	running bool
	life    int

	resume func() (struct{}, bool)
	yield  func(struct{}) bool
	cancel context.CancelFunc
	failed error

	readings chan desired.Reading
	drift    chan struct{}
	timer    chan time.Time
	due      time.Duration // of the timer, in the clock's mono

	turns   int
	instant time.Duration // of the last turn, and how many there were in it
	crowd   int
	hour    []time.Duration // of the last turns
	status  report.Status

	mu    sync.Mutex
	calls []*call // that the agent's goroutines began in this turn

	inbox []func() // what reaches the agent at the end of this turn
	trail string   // the last record
}

// call is one that a goroutine of the agent waits for: an action, or a proof of trust.
type call struct {
	unit  unitplan.Unit
	certs []pki.Cert
	end   chan struct{}
	after unitplan.State
	why   string
	err   error
}

// await has a goroutine of the agent wait until the walk answers.
func (p *process) await(c *call) {
	c.end = make(chan struct{})
	p.mu.Lock()
	p.calls = append(p.calls, c)
	p.mu.Unlock()
	<-c.end
}

// answer ends a call; the agent hears of it in a turn of its own.
func (p *process) answer(c *call) {
	life := p.life
	p.inbox = append(p.inbox, func() {
		close(c.end)
		p.w.quiet()
		switch {
		case !p.running || p.life != life:
		case p.asks():
			p.admit() // a proof may take two questions
		default:
			p.turnOnce()
		}
	})
}

func (p *process) asks() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.calls) > 0
}

// rest ends a turn of the loop. It is called by the loop.
func (p *process) rest(d time.Duration) <-chan time.Time {
	c := make(chan time.Time, 1)
	p.timer, p.due = c, p.w.clock.mono+max(d, 0)
	p.yield(struct{}{})
	return c
}

// start starts the agent with the settings in force.
func (w *env) start() {
	p := &w.agent
	if p.running || w.violation != nil {
		return
	}
	w.logf("the agent starts")
	p.running, p.life, p.failed, p.status, p.inbox, p.calls, p.crowd = true, p.life+1, nil, report.Status{}, nil, nil, 0
	p.readings, p.drift = make(chan desired.Reading, 1), make(chan struct{}, 1)
	w.cluster.connect()
	w.model.begin(w)
	rng := w.draw("jitter", p.life)
	policy := w.policy
	a := &agent.Agent{Readings: p.readings, FileWatcher: drift{p}, Writer: &w.disk, Store: w.memory.store,
		Overrides: w.overrides, Trail: trail{w}, Report: reporter{w},
		Clock: systemClock{w}, Log: zap.NewNop(), Policy: w.policy, Times: w.times, Node: "node", Random: rng.Int64N,
		Remember: func(k plan.Key, data []byte) (plan.Entry, error) {
			spec, ok := policy.File(k.Field)
			if !ok {
				return plan.Entry{}, fmt.Errorf("this host has no field %s", k.Field)
			}
			return spec.Entry(k.Name, data, time.Time{})
		}}
	if len(w.policy.Units) > 0 {
		a.Units = &w.systemd
	}
	if w.policy.Trust.Source != "" {
		a.Trust = trust{w}
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	p.resume, _ = iter.Pull(func(yield func(struct{}) bool) {
		p.yield = yield
		defer func() {
			if r := recover(); r != nil {
				w.violate("panic", "%v\n%s", r, debug.Stack())
			}
		}()
		p.failed = a.Run(ctx)
	})
	w.turn()
}

// turn lets the agent deal with what is ready, and with all that follows from it at once.
func (w *env) turn() {
	w.agent.turnOnce()
	w.agent.deliver()
}

// deliver gives the agent what has reached it, one after the other.
func (p *process) deliver() {
	for len(p.inbox) > 0 {
		next := p.inbox[0]
		p.inbox = p.inbox[1:]
		next()
	}
}

func (p *process) turnOnce() {
	w := p.w
	if !p.running {
		return
	}
	p.turns++
	w.model.begun = w.model.others
	w.counts.Turns++
	_, alive := p.resume()
	w.quiet()
	if !alive {
		w.logf("the agent ended: %v", p.failed)
		p.cleanUp()
		return
	}
	p.admit()
	if w.faults.dead {
		p.end("the agent is dead")
		return
	}
	p.count()
	w.atRest()
}

// admit carries out what goroutines of the agent began to ask for, in an order of its own.
func (p *process) admit() {
	p.mu.Lock()
	calls := p.calls
	p.calls = nil
	p.mu.Unlock()
	slices.SortFunc(calls, func(a, b *call) int { return cmp.Compare(a.unit.Name, b.unit.Name) })
	for _, c := range calls {
		if c.unit.Name == "" {
			p.w.prove(c)
		} else {
			p.w.systemd.begin(c)
		}
	}
}

// Bounds of how often the loop may turn. What a person or the cluster does is far from them.
const (
	mostAtOnce  = 60
	mostPerHour = 400
)

// count looks for a loop that turns without need. Turns of different steps do not add up.
func (p *process) count() {
	w := p.w
	if p.instant != w.clock.lived {
		p.instant, p.crowd = w.clock.lived, 0
	}
	if p.crowd++; p.crowd > mostAtOnce {
		w.violate("busy", "the loop turned %d times without any time passing", p.crowd)
	}
	p.hour = append(p.hour, w.clock.lived)
	if n := len(p.hour); n > mostPerHour {
		if took := w.clock.lived - p.hour[0]; took < time.Hour {
			w.violate("busy", "the loop turned %d times in %v in which nobody did anything", n, took)
		}
		p.hour = p.hour[1:]
	}
}

// fire lets the timer run out.
func (p *process) fire() {
	p.timer <- p.w.clock.now()
	p.w.turn()
}

// end kills the agent, or stops it if it still can answer.
func (p *process) end(how string) {
	w := p.w
	if !p.running {
		return
	}
	w.logf("%s", how)
	w.model.end(w)
	p.cancel()
	for range 3 {
		if _, alive := p.resume(); !alive {
			break
		}
	}
	p.cleanUp()
}

// cleanUp clears up after the process.
func (p *process) cleanUp() {
	w := p.w
	p.cancel()
	p.running, w.faults.dead, w.faults.killIn, w.faults.killDone = false, false, 0, false
	p.admitNobody()
	w.systemd.abandon()
	p.deliver()
	for w.quiet(); p.asks(); w.quiet() {
		p.admitNobody()
	}
	p.hour, w.faults.scribbleIn = nil, 0
}

// admitNobody sends goroutines away that nobody waits for any more.
func (p *process) admitNobody() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.calls {
		c.err = errKilled
		close(c.end)
	}
	p.calls = nil
}

// kill ends the agent at rest, as by SIGKILL.
func (w *env) kill() {
	if !w.agent.running {
		return
	}
	w.faults.dead = true
	w.agent.end("the agent is killed")
}

// stop ends it in an orderly way.
func (w *env) stop() {
	if !w.agent.running {
		return
	}
	w.systemd.forgive() // whoever stops the agent may have repaired what failed
	w.agent.end("the agent is stopped")
}

// notice tells the agent that a managed directory changed.
func (w *env) notice() {
	if w.agent.running && w.violation == nil {
		w.agent.drift <- struct{}{}
		w.turn()
	}
}

type drift struct{ *process }

// Changed implements agent.FileWatcher.
func (d drift) Changed() <-chan struct{} { return d.process.drift }

// Set implements agent.FileWatcher.
func (d drift) Set([]string) error { return nil }

type trail struct{ *env }

// Record implements audit.Recorder.
func (t trail) Record(r audit.Record) {
	t.agent.trail = r.Message
	if name, why, _ := strings.Cut(r.Message, ": "); r.Kind.Name == audit.UnitAdopted.Name && t.clock.set &&
		strings.HasPrefix(why, "started after") {
		t.systemd.units[name].byTime = true
	}
	t.logf("    record %s: %s", r.Kind.Name, r.Message)
}

type reporter struct{ *env }

// Ready implements agent.Reporter.
func (reporter) Ready() error { return nil }

// Alive implements agent.Reporter.
func (reporter) Alive() error { return nil }

// Publish implements agent.Reporter.
func (r reporter) Publish(s report.Status) error {
	if r.faults.dead {
		return errKilled
	}
	if r.agent.status.Paused != "" && s.Paused == "" {
		r.systemd.forgive() // whoever paused the agent may have repaired what failed
	}
	r.agent.status = s
	if r.systemd.gaveUp() {
		r.systemd.foreign = true
	}
	r.model.published(r.env)
	return nil
}

type trust struct{ *env }

// Use implements agent.Trust.
func (trust) Use([]pki.Cert) {}

// Prove implements agent.Trust.
func (t trust) Prove(_ context.Context, certs []pki.Cert) (string, error) {
	c := &call{certs: certs}
	t.agent.await(c)
	return c.why, c.err
}
