// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/agent/state"
)

// writerTimeout bounds one request to the privileged half: it may have to be started first, and a
// slow disk may have to sync many files.
const writerTimeout = 60 * time.Second

// loop is the state of a running agent. Only the goroutine of Run touches it.
type loop struct {
	*Agent
	desired  *plan.Desired
	done     *plan.Desired // of the last pass that succeeded
	memory   state.State
	known    *known
	observed plan.Observed
	unsynced map[plan.Key]bool
	reading  Reading
	since    time.Time // of reading.State
	synced   time.Time
	trouble  string
	refused  []plan.Refusal
	kept     []plan.Refusal
	writes   uint64
	actions  report.ActionCounter

	followed map[string]bool // directories

	units map[string]*unit
	jobs  chan job

	failures int
	retry    time.Time // zero: nothing failed
	resync   time.Time
	alive    time.Time
}

// restore loads the memory and brings the host back to the last good version as far as that takes
// nothing away; then the service is ready, with or without a network.
func (l *loop) restore(ctx context.Context) error {
	st, lost, err := l.Store.Load()
	if err != nil {
		return err
	}
	l.memory = st
	if l.memory.Units == nil {
		l.memory.Units = make(map[string]plan.Loaded)
	}
	l.reading, l.since = Reading{State: "starting"}, l.Clock.Now()
	l.Trail.Record(audit.Record{Kind: audit.Started, Message: fmt.Sprintf("started with %s and %s on the allowlist", count(len(l.Policy.Rows), "row"), count(len(l.Policy.Units), "unit"))}.
		With(audit.Version, l.Version))
	switch {
	case lost == state.NoFile:
		l.Trail.Record(audit.Record{Kind: audit.NoMemory, Message: "nothing is remembered yet: " + lost})
	case lost != "":
		l.Trail.Record(audit.Record{Kind: audit.MemoryLost, Message: "starting without memory: " + lost})
	}
	swept, err := l.sweep(ctx)
	if err != nil {
		l.Log.Warn("sweeping after an interrupted commit", zap.Error(err))
	}
	for _, path := range swept {
		l.Log.Info("removed what an interrupted commit left", zap.String("path", path))
	}
	if d := l.lastGood(); d != nil {
		l.desired = d
	}
	l.pass(ctx)
	if err := l.Report.Ready(); err != nil {
		l.Log.Warn("telling systemd that we are ready", zap.Error(err))
	}
	return nil
}

func (l *loop) sweep(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, writerTimeout)
	defer cancel()
	return l.Writer.Sweep(ctx)
}

// lastGood is what the object last asked for, as remembered. It is not verified: it repairs and
// never removes.
func (l *loop) lastGood() *plan.Desired {
	d := &plan.Desired{Object: l.memory.Object}
	for _, r := range l.memory.LastGood {
		data, err := l.Store.Content(r)
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
	l.reading = Reading{State: r.State, Reason: r.Reason, Identity: r.Identity}
	if r.Desired != nil {
		d := *r.Desired
		if l.desired != nil {
			d = d.Carry(*l.desired, l.Policy)
		}
		l.desired = &d
	}
}

// pass is one turn of the loop: plan, apply, settle the units, report. Whatever fails is retried
// from the start, from what is on disk then.
func (l *loop) pass(ctx context.Context) {
	l.answerWatchdog()
	err := l.try(ctx)
	if ctx.Err() != nil {
		return
	}
	l.account(err)
	l.followFiles()
	if err := l.Report.Publish(l.status()); err != nil {
		l.Log.Warn("publishing the status", zap.Error(err))
	}
	if l.Idle != nil {
		l.Idle()
	}
}

func (l *loop) try(ctx context.Context) error {
	if l.desired == nil {
		return nil
	}
	if err := l.express(ctx); err != nil {
		return err
	}
	p, err := l.plan(ctx)
	if err != nil {
		return err
	}
	if err := l.apply(ctx, p); err != nil {
		return err
	}
	return l.settle(ctx)
}

// plan looks at the host and decides (steps 1 and 2 of the flow).
func (l *loop) plan(ctx context.Context) (plan.Plan, error) {
	o, err := observe(ctx, l.Writer, *l.desired, l.memory.Memory, l.Policy, l.known.at)
	if err != nil {
		return plan.Plan{}, err
	}
	l.known.learn(o, *l.desired)
	l.observed = o
	p := plan.Compute(plan.Input{Desired: *l.desired, Observed: o, Memory: l.memory.Memory,
		Policy: l.Policy, Known: l.known.certs, Unsynced: l.unsynced})
	return p, nil
}

// observe asks w for every file that a decision about d needs.
func observe(ctx context.Context, w Writer, d plan.Desired, m plan.Memory, p plan.Policy, known map[plan.Key]plan.Digest) (plan.Observed, error) {
	ctx, cancel := context.WithTimeout(ctx, writerTimeout)
	defer cancel()
	queries := plan.Queries(d, m, p, known)
	files, err := w.Observe(ctx, queries)
	if err != nil {
		return nil, fmt.Errorf("observing the managed files: %v", err)
	}
	o := make(plan.Observed, len(files))
	for i, f := range files {
		o[queries[i].Key] = f
	}
	return o, nil
}

// followFiles has the directories of all managed files watched: those of the table, and those that
// entries have for themselves.
func (l *loop) followFiles() {
	dirs := make(map[string]bool)
	for _, r := range l.Policy.Rows {
		dirs[r.Directory()] = true
	}
	if l.desired != nil {
		for _, e := range l.desired.Entries {
			if row, ok := l.Policy.Row(e.Row); ok {
				if p, err := row.Path(e.Name); err == nil {
					dirs[path.Dir(p)] = true
				}
			}
		}
	}
	if !maps.Equal(dirs, l.followed) {
		l.followed = dirs
		if err := l.Drift.Set(slices.Sorted(maps.Keys(dirs))); err != nil {
			l.Log.Warn("watching the managed directories", zap.Error(err))
		}
	}
}

// Preview is the plan for d on the host as it is, without any effect.
func Preview(ctx context.Context, w Writer, d plan.Desired, m plan.Memory, p plan.Policy) (plan.Plan, error) {
	o, err := observe(ctx, w, d, m, p, nil)
	if err != nil {
		return plan.Plan{}, err
	}
	return plan.Compute(plan.Input{Desired: d, Observed: o, Memory: m, Policy: p}), nil
}

// account turns the outcome of a pass into trouble, its record and the next retry.
func (l *loop) account(err error) {
	now := l.Clock.Now()
	if !now.Before(l.resync) {
		l.resync = now.Add(jitter(l.Times.Resync))
	}
	if err == nil {
		l.failures, l.retry, l.trouble, l.done = 0, time.Time{}, "", l.desired
		return
	}
	if text := err.Error(); text != l.trouble {
		l.trouble = text
		l.Trail.Record(audit.Record{Kind: audit.Trouble, Message: text})
	}
	l.retry = now.Add(jitter(backoff(l.Times, l.failures)))
	l.failures++
}

// jitter is d more or less a tenth.
func jitter(d time.Duration) time.Duration {
	return d - d/10 + rand.N(d/5+1)
}

func backoff(t Times, failures int) time.Duration {
	return min(t.RetryMin<<min(failures, 20), t.RetryMax)
}

// place is this node's fixed place within d, so that a fleet does not move at once.
func place(node, unit string, d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	h := fnv.New64a()
	h.Write([]byte(node + "\x00" + unit))
	return time.Duration(h.Sum64() % uint64(d))
}

// wake fires when the next thing is due that no event will announce.
func (l *loop) wake() <-chan time.Time {
	next := l.next()
	if !l.alive.IsZero() && l.alive.Before(next) {
		next = l.alive
	}
	return l.Clock.After(max(0, next.Sub(l.Clock.Now())))
}

// due tells whether a pass is, and not only the watchdog.
func (l *loop) due() bool { return !l.Clock.Now().Before(l.next()) }

// next is when the resync, a retry or a unit's action comes up.
func (l *loop) next() time.Time {
	next := l.resync
	if !l.retry.IsZero() && l.retry.Before(next) {
		next = l.retry
	}
	for _, u := range l.units {
		if !u.due.IsZero() && !u.running && u.due.Before(next) {
			next = u.due
		}
	}
	return next
}

// answerWatchdog tells systemd that the loop turns, at twice the pace it asks for.
func (l *loop) answerWatchdog() {
	now := l.Clock.Now()
	if l.Times.Watchdog <= 0 || now.Before(l.alive) {
		return
	}
	if err := l.Report.Alive(); err != nil {
		l.Log.Warn("answering the watchdog", zap.Error(err))
	}
	l.alive = now.Add(l.Times.Watchdog / 2)
}

// news gives what is in now and was not in before, so that a refusal is recorded once and not at
// every pass.
func news(before, now []plan.Refusal) []plan.Refusal {
	return slices.DeleteFunc(slices.Clone(now), func(r plan.Refusal) bool { return slices.Contains(before, r) })
}
