// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent"
	"github.com/node-cert-agent/node-cert-agent/agent/unitactions"
	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
)

// env is one host with its agent, the cluster it follows and the people who work on it.
type env struct {
	setting Setting
	seed    uint64
	policy  unitplan.Policy
	times   agent.Times

	clock   clock
	disk    disk
	memory  memory
	systemd systemd
	cluster cluster
	faults  faults
	agent   process
	model   model

	// quiet returns when no goroutine of the agent has anything to do: synctest.Wait.
	quiet  func()
	steps  int
	counts Counts

	log       []string // nil unless the walk is to be told
	logging   bool
	violation *Violation
	ignore    func(Violation) bool
}

// Violation is a promise that was not kept.
type Violation struct {
	// Kind is the promise in a word or two, and Text what happened.
	Kind, Text string
}

// String is both on one line.
func (v Violation) String() string { return v.Kind + ": " + v.Text }

// Counts say how much a walk did, so that a simulator that does nothing is noticed.
type Counts struct {
	Walks, Steps, Turns, Commits, Writes, Removals, Certificates, Actions, Kills, Boots int
}

// Add puts the counts of another walk to c.
func (c *Counts) Add(o Counts) {
	c.Walks, c.Steps, c.Turns, c.Commits, c.Writes = c.Walks+o.Walks, c.Steps+o.Steps, c.Turns+o.Turns,
		c.Commits+o.Commits, c.Writes+o.Writes
	c.Removals, c.Certificates, c.Actions, c.Kills, c.Boots = c.Removals+o.Removals, c.Certificates+o.Certificates,
		c.Actions+o.Actions, c.Kills+o.Kills, c.Boots+o.Boots
}

func newEnv(seed uint64, s Setting, quiet func()) *env {
	w := &env{seed: seed, setting: s, quiet: quiet}
	w.times = agent.Times{Resync: 30 * time.Minute, SettleDelay: s.Rest, RetryMin: time.Second, RetryMax: time.Minute,
		Times: unitactions.Times{BatchWindow: 2 * time.Second, RandomizedDelay: s.Spread, Job: time.Minute,
			Breaker: 30 * time.Minute}}
	w.policy = s.policy()
	w.model = newModel(w)
	w.disk = newDisk(w)
	w.memory = memory{w: w, files: make(map[string][]byte)}
	w.clock.advance(10 * time.Second)
	w.systemd = newSystemd(w)
	w.clock.advance(20 * time.Second)
	w.cluster = newCluster()
	w.agent.w = w
	w.memory.open()
	return w
}

// logf tells what happens, if anybody listens.
func (w *env) logf(format string, args ...any) {
	if w.logging {
		w.log = append(w.log, fmt.Sprintf("%12s  ", w.clock.truth.Round(time.Millisecond))+fmt.Sprintf(format, args...))
	}
}

// violate ends the walk. The first violation counts: what follows may be its consequence.
func (w *env) violate(kind, format string, args ...any) {
	v := Violation{Kind: kind, Text: fmt.Sprintf(format, args...)}
	if w.violation == nil && (w.ignore == nil || !w.ignore(v)) {
		w.violation = &v
		w.logf("VIOLATION %s", v)
	}
}

// draw gives random numbers that depend on the walk's seed and on what they are for, and on nothing that
// happened before.
func (w *env) draw(what string, n int) *rand.Rand {
	h := w.seed
	for _, b := range []byte(what) {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return rand.New(rand.NewPCG(h, uint64(n)))
}

// advance lets time go by: whatever comes due on the way happens.
func (w *env) advance(d time.Duration) {
	for end := w.clock.mono + d; w.violation == nil; {
		next := end
		if w.agent.running {
			next = min(next, max(w.agent.due, w.clock.mono))
		}
		if at, ok := w.systemd.next(); ok {
			next = min(next, max(at, w.clock.mono))
		}
		w.clock.advance(next - w.clock.mono)
		if w.systemd.work() {
			w.agent.deliver()
			continue
		}
		if w.agent.running && w.agent.due <= w.clock.mono {
			w.agent.fire()
			continue
		}
		if w.clock.mono >= end {
			if w.agent.running {
				w.model.overdue(w)
			}
			return
		}
	}
}
