// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/clock"
	"github.com/node-cert-agent/node-cert-agent/agent/consumers"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/agent/state"
	"github.com/node-cert-agent/node-cert-agent/agent/unitactions"
)

// loop is the state of a running agent. Only the goroutine of Run touches it.
type loop struct {
	*Agent
	object   *plan.Desired            // what the object asks for
	desired  *plan.Desired            // with the operator's word over it
	done     map[plan.Key]plan.Digest // what the last pass that succeeded asked for; without its bytes
	memory   *state.Memory
	known    *known
	observed plan.Observed
	blind    bool // the last look failed, so that observed may be older than a commit
	unsynced map[plan.Key]bool
	failing  map[plan.RowID]bool   // rows of which the last commit failed
	former   map[string]plan.Claim // claims before those of the present plan
	unswept  bool                  // a commit may have left something behind
	entries  []plan.Entry          // what the files have, by the last plan
	reading  Reading
	since    time.Time // of reading.State
	synced   time.Time
	refused  []plan.Refusal
	kept     []plan.Refusal
	held     []plan.Held
	release  time.Time // when the next hold ends; zero if nothing is held for a time
	quarrels quarrels
	writes   uint64

	wanted      wanted
	operator    *report.Operator
	resume      time.Time // when a pause ends; zero if there is none
	word        state.Word
	wordTrouble string // why it could not be read
	listening   bool   // it may have changed: something happened on this host, or time passed
	once        bool   // this is the command that says it
	ready       bool   // systemd was told
	forgot      bool   // whether the word that is there was carried out is not remembered

	trust     *trust
	actions   *unitactions.Actions
	consumers *consumers.Consumers
	schedule  *schedule
	followed  *followed
}

func (a *Agent) loop() *loop {
	if a.Operator == nil {
		a.Operator = silent{}
	}
	memory := state.NewMemory(a.Store)
	backoff := clock.Backoff{Min: a.Times.RetryMin, Max: a.Times.RetryMax, Random: a.Random}
	return &loop{Agent: a, memory: memory, known: newKnown(), failing: make(map[plan.RowID]bool),
		trust:    &trust{verify: a.Trust, proofs: make(chan proof, 1)},
		schedule: &schedule{clock: a.Clock, backoff: backoff, times: a.Times},
		followed: &followed{drift: a.Drift, log: a.Log},
		actions: unitactions.New(unitactions.Options{Systemd: a.Units, Memory: memory, Trail: a.Trail, Clock: a.Clock,
			Log: a.Log, Policy: a.Policy, Backoff: backoff, Node: a.Node,
			Times: unitactions.Times{Coalesce: a.Times.Coalesce,
				Spread: a.Times.Spread, Job: a.Times.Job, Breaker: a.Times.Breaker}}),
		consumers: consumers.New(consumers.Options{Prober: a.Prober, Policy: a.Policy, Trail: a.Trail, Clock: a.Clock,
			Patience: a.Times.Probe, Again: a.Times.Resync})}
}

// silent is an operator who said nothing.
type silent struct{}

func (silent) Word(state.Word) (state.Word, error) { return state.Word{}, nil }

// begin loads the memory and brings the host back to the last good version as far as that takes
// nothing away. On its way the service becomes ready, with or without a network, and before any unit is asked
// about.
func (l *loop) begin(ctx context.Context) error {
	lost, err := l.memory.Load()
	if err != nil {
		return err
	}
	l.actions.Restore()
	l.reading, l.since = Reading{State: "starting"}, l.Clock.Now()
	l.Trail.Record(audit.Record{Kind: audit.Started, Message: fmt.Sprintf("started with %s and %s on the allowlist", audit.Count(len(l.Policy.Rows), "row"), audit.Count(len(l.Policy.Units), "unit"))}.
		With(audit.Version, l.Version))
	switch {
	case lost == state.NoFile:
		l.Trail.Record(audit.Record{Kind: audit.NoMemory, Message: "nothing is remembered yet: " + lost})
	case lost != "":
		l.Trail.Record(audit.Record{Kind: audit.MemoryLost, Message: "starting without memory: " + lost})
	}
	l.sweep(ctx)
	l.object, l.listening, l.forgot = l.lastGood(), true, lost != "" && !l.once
	l.pass(ctx)
	l.forgot = false
	return nil
}

// end is an orderly one.
func (l *loop) end() {
	if err := l.actions.ResetFailures(); err != nil {
		l.Log.Warn("forgetting failed actions", zap.Error(err))
	}
	l.catchUp()
}

// sweep removes what interrupted commits left beside managed files.
func (l *loop) sweep(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, writerTimeout)
	defer cancel()
	swept, err := l.Writer.Sweep(ctx)
	l.unswept = err != nil
	if err != nil {
		l.Log.Warn("sweeping after an interrupted commit", zap.Error(err))
	}
	for _, path := range swept {
		l.Log.Info("removed what an interrupted commit left", zap.String("path", path))
	}
}

// lastGood is what the object last asked for, as remembered. It is not verified: it repairs and
// never removes.
func (l *loop) lastGood() *plan.Desired {
	remembered := l.memory.State()
	d := &plan.Desired{Object: remembered.Object}
	for _, r := range remembered.LastGood {
		data, err := l.memory.Content(r)
		if err == nil {
			var e plan.Entry
			if e, err = l.Remember(r.Key, data); err == nil {
				d.Entries = append(d.Entries, e)
				continue
			}
		}
		l.Log.Warn("a remembered file cannot be used", zap.Stringer("file", r.Key), zap.Error(err))
	}
	if len(d.Entries) == 0 {
		return nil
	}
	return d
}

// take accepts a reading.
func (l *loop) take(r Reading) {
	if r.State != l.reading.State {
		l.since = l.Clock.Now()
		l.Trail.Record(audit.Record{Kind: audit.SourceState, Message: strings.TrimSuffix("the source is "+r.State+": "+r.Reason, ": ")}.
			With(audit.State, r.State).With(audit.Reason, r.Reason))
	}
	if c, before := r.ConfigMap, l.reading.ConfigMap; c != nil && (before == nil || c.State != before.State) {
		l.Trail.Record(audit.Record{Kind: audit.SourceState, Message: strings.TrimSuffix("the ConfigMap is "+c.State+": "+c.Reason, ": ")}.
			With(audit.State, c.State).With(audit.Reason, c.Reason))
	}
	l.reading = Reading{State: r.State, Reason: r.Reason, ConfigMap: r.ConfigMap, Identity: r.Identity, Time: r.Time}
	if r.Desired != nil {
		d := *r.Desired
		if !d.Partial {
			l.memory.Note(func(s *state.State) { s.Projection = d.Projection() })
		}
		if l.object != nil {
			d = d.Carry(*l.object, l.Policy)
		}
		l.object = &d
	}
}
