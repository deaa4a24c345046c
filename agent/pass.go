// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/clock"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/unitactions"
)

// pass is one turn of the loop: plan, apply, settle the units, have consumers asked, report. Whatever
// fails is retried from the start, from what is on disk then. What is new is published first, and the
// rest of the turn then comes after a rest.
func (l *loop) pass(ctx context.Context) {
	l.answerWatchdog()
	if l.schedule.begin() {
		l.trust.answers, l.followed.directories = nil, nil
	}
	l.desired.Update()
	err := l.express(ctx)
	if err == nil && l.schedule.resting() {
		return
	}
	l.schedule.rest = time.Time{}
	if err == nil {
		err = l.try(ctx)
	} else {
		l.actions.Unobserved()
	}
	if ctx.Err() != nil {
		return
	}
	if news := l.schedule.end(err, l.timers()); news != "" {
		l.Trail.Record(audit.Record{Kind: audit.Trouble, Message: news})
	}
	if l.schedule.failures == 0 {
		l.finish()
	}
	l.trust.use(l.known.contents[l.known.at[plan.Key{Row: l.Policy.Trust.Source}]])
	if l.desired.Current() != nil {
		l.consumers.Probe(ctx, l.inPlace())
	}
	l.followed.set(l.directories())
	l.publish()
}

// publish shows how things stand. Nothing else follows it, so memory may be given back.
func (l *loop) publish() {
	if err := l.Report.Publish(l.status()); err != nil {
		l.Log.Warn("publishing the status", zap.Error(err))
	}
	if l.Idle != nil {
		l.Idle()
	}
}

func (l *loop) try(ctx context.Context) error {
	if l.desired.Current() == nil {
		l.announce()
		l.actions.Review(ctx)
		return nil
	}
	if l.unswept {
		l.sweep(ctx)
	}
	p, err := l.plan(ctx)
	if err == nil {
		err = l.apply(ctx, p)
	}
	l.announce()
	// What failed keeps only the units waiting that read it.
	unsettled := l.settle(ctx)
	return cmp.Or(err, unsettled)
}

// announce tells systemd, once, that what can be done about the files is done. What is ordered after the agent
// waits for that, and not for the reloader to start and for the bus to answer.
func (l *loop) announce() {
	if l.ready || l.once {
		return
	}
	l.ready = true
	if err := l.Report.Ready(); err != nil {
		l.Log.Warn("telling systemd that we are ready", zap.Error(err))
	}
}

// settle has the units load what is on disk.
func (l *loop) settle(ctx context.Context) error {
	if l.observed == nil {
		l.actions.Unobserved()
		return nil
	}
	d := l.desired.Current()
	doubts := plan.Doubts(d.Entries, l.entries, l.observed, l.unsynced)
	return l.actions.Reconcile(ctx, unitactions.Host{Desired: *d, Inputs: l.inputs(l.observed, doubts), Seen: l.seen})
}

// plan looks at the host and decides (steps 1 and 2 of the flow).
func (l *loop) plan(ctx context.Context) (plan.Plan, error) {
	o, err := observe(ctx, l.Writer, plan.Queries(*l.desired.Current(), l.memory.State().Memory, l.Policy, l.known.at))
	l.observed, l.blind = o, false
	if err != nil {
		return plan.Plan{}, err
	}
	l.known.learn(o, *l.desired.Current())
	return plan.Compute(l.input(*l.desired.Current(), o)), nil
}

// input is all that a decision about d depends on.
func (l *loop) input(d plan.Desired, o plan.Observed) plan.Input {
	return plan.Input{Desired: d, Observed: o, Memory: l.memory.State().Memory, Policy: l.Policy, Now: l.desired.Moment(),
		Known: l.known.contents, Answers: l.trust.answers, Unsynced: l.unsynced}
}

// finish remembers what the pass asked for, so that the next can tell what is new.
func (l *loop) finish() {
	if l.desired.Current() == nil {
		return
	}
	l.done = make(map[plan.Key]plan.Digest, len(l.desired.Current().Entries))
	for _, e := range l.desired.Current().Entries {
		l.done[e.Key] = e.Digest
	}
}

// news gives what is in now and was not in before, so that a refusal is recorded once and not at
// every pass.
func news(before, now []plan.Refusal) []plan.Refusal {
	return slices.DeleteFunc(slices.Clone(now), func(r plan.Refusal) bool { return slices.Contains(before, r) })
}

// timers are those that are set. As long as nothing is desired, nothing is held, repaired or acted on.
func (l *loop) timers() []clock.Timer {
	all := []clock.Timer{l.desired.Timer()}
	if l.desired.Current() != nil {
		all = append(all, clock.Timer{What: "the end of a hold", At: l.release},
			clock.Timer{What: "a repair that was put off", At: l.quarrels.next})
	}
	all = append(all, l.actions.Timers(l.desired.Current() != nil)...)
	return slices.DeleteFunc(all, func(t clock.Timer) bool { return t.At.IsZero() })
}

// answerWatchdog tells systemd that the loop turns.
func (l *loop) answerWatchdog() {
	if !l.schedule.watchdog() {
		return
	}
	if err := l.Report.Alive(); err != nil {
		l.Log.Warn("answering the watchdog", zap.Error(err))
	}
}
