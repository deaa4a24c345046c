// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"

	"go.uber.org/zap"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/clock"
	"github.com/node-cert-agent/node-cert-agent/agent/consumers"
	"github.com/node-cert-agent/node-cert-agent/agent/desired"
	"github.com/node-cert-agent/node-cert-agent/agent/files"
	"github.com/node-cert-agent/node-cert-agent/agent/printable"
	"github.com/node-cert-agent/node-cert-agent/agent/state"
	"github.com/node-cert-agent/node-cert-agent/agent/unitactions"
)

// Run works until ctx ends. It returns an error only if the agent's own directories cannot be used
// at the start; everything else that is wrong with the world is a state with a reason and a next try.
func (a *Agent) Run(ctx context.Context) error {
	l := a.loop()
	if err := l.begin(ctx); err != nil {
		return err
	}
	l.announce()
	for {
		select {
		case <-ctx.Done():
			l.end()
			return nil
		case r := <-a.Readings:
			l.desired.HandleReading(r)
		case <-a.FileWatcher.Changed():
			l.desired.Reload()
		case j := <-l.actions.Jobs():
			l.actions.Ended(j)
		case p := <-l.trust.proofs:
			l.trust.take(p)
		case a := <-l.consumers.Answers():
			l.consumers.HandleAnswer(a, l.actions.Waits)
			if l.schedule.settlesAt.IsZero() { // else a new version would show before it is done
				l.publish()
			}
			continue
		case <-l.schedule.wake(l.timers()):
			l.answerWatchdog()
			if !l.schedule.due(l.timers()) {
				continue
			}
			l.desired.Reload()
		}
		l.reconcile(ctx)
	}
}

func (a *Agent) loop() *loop {
	memory := state.NewMemory(a.Store)
	backoff := clock.Backoff{Min: a.Times.RetryMin, Max: a.Times.RetryMax, Random: a.Random}
	actions := unitactions.New(unitactions.Options{Systemd: a.Units, Memory: memory, Trail: a.Trail, Clock: a.Clock,
		Log: a.Log, Policy: a.Policy, Backoff: backoff, Node: a.Node, Times: a.Times.Times})
	return &loop{Agent: a, memory: memory, actions: actions,
		desired: desired.New(desired.Options{Overrides: a.Overrides, Memory: memory, Trail: a.Trail, Clock: a.Clock,
			Log: a.Log, Policy: a.Policy.Policy, Remember: a.Remember, Built: a.Built}),
		files: files.New(files.Options{Writer: a.Writer, Units: actions, Memory: memory, Trail: a.Trail, Clock: a.Clock,
			Log: a.Log, Policy: a.Policy.Policy, LookAgain: len(a.Policy.Units) > 0}),
		consumers: consumers.New(consumers.Options{Prober: a.Prober, Policy: a.Policy.Policy, Trail: a.Trail, Clock: a.Clock,
			Timeout: a.Times.Probe, RetryInterval: a.Times.Resync}),
		trust:    &trust{verify: a.Trust, proofs: make(chan proof, 1)},
		schedule: &schedule{clock: a.Clock, backoff: backoff, times: a.Times},
		followed: &followed{watcher: a.FileWatcher, log: a.Log}}
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
	message := fmt.Sprintf("started with %s and %s on the allowlist",
		printable.Count(len(l.Policy.Files), "file"), printable.Count(len(l.Policy.Units), "unit"))
	l.Trail.Record(audit.Record{Kind: audit.Started, Message: message}.With(audit.Version, l.Version))
	switch {
	case lost == state.NoFile:
		l.Trail.Record(audit.Record{Kind: audit.NoMemory, Message: "nothing is remembered yet: " + lost})
	case lost != "":
		l.Trail.Record(audit.Record{Kind: audit.MemoryLost, Message: "starting without memory: " + lost})
	}
	l.files.Sweep(ctx)
	l.desired.Start(lost != "" && !l.once)
	l.reconcile(ctx)
	return nil
}

// end is an orderly one.
func (l *loop) end() {
	if err := l.actions.ResetFailures(); err != nil {
		l.Log.Warn("forgetting failed actions", zap.Error(err))
	}
	if d := l.desired.Current(); d != nil && !l.schedule.settlesAt.IsZero() {
		if err := l.files.Flush(*d); err != nil {
			l.Log.Warn("remembering what was published last", zap.Error(err))
		}
	}
}
