// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/clock"
	"github.com/node-cert-agent/node-cert-agent/agent/consumers"
	"github.com/node-cert-agent/node-cert-agent/agent/desired"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/state"
	"github.com/node-cert-agent/node-cert-agent/agent/unitactions"
)

// loop is the state of a running agent. Only the goroutine of Run touches it.
type loop struct {
	*Agent
	desired  *desired.State
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
	synced   time.Time
	refused  []plan.Refusal
	kept     []plan.Refusal
	held     []plan.Held
	release  time.Time // when the next hold ends; zero if nothing is held for a time
	quarrels quarrels
	writes   uint64

	once  bool // this is the command that says it
	ready bool // systemd was told

	trust     *trust
	actions   *unitactions.Actions
	consumers *consumers.Consumers
	schedule  *schedule
	followed  *followed
}

func (a *Agent) loop() *loop {
	memory := state.NewMemory(a.Store)
	backoff := clock.Backoff{Min: a.Times.RetryMin, Max: a.Times.RetryMax, Random: a.Random}
	return &loop{Agent: a, memory: memory,
		desired: desired.New(desired.Options{Operator: a.Operator, Memory: memory, Trail: a.Trail, Clock: a.Clock, Log: a.Log,
			Policy: a.Policy, Remember: a.Remember, Built: a.Built}),
		known: newKnown(), failing: make(map[plan.RowID]bool),
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

// begin loads the memory and brings the host back to the last good version as far as that takes
// nothing away. On its way the service becomes ready, with or without a network, and before any unit is asked
// about.
func (l *loop) begin(ctx context.Context) error {
	lost, err := l.memory.Load()
	if err != nil {
		return err
	}
	l.actions.Restore()
	l.Trail.Record(audit.Record{Kind: audit.Started, Message: fmt.Sprintf("started with %s and %s on the allowlist", audit.Count(len(l.Policy.Rows), "row"), audit.Count(len(l.Policy.Units), "unit"))}.
		With(audit.Version, l.Version))
	switch {
	case lost == state.NoFile:
		l.Trail.Record(audit.Record{Kind: audit.NoMemory, Message: "nothing is remembered yet: " + lost})
	case lost != "":
		l.Trail.Record(audit.Record{Kind: audit.MemoryLost, Message: "starting without memory: " + lost})
	}
	l.sweep(ctx)
	l.desired.Start(lost != "" && !l.once)
	l.pass(ctx)
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
