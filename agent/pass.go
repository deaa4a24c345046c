// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/unitactions"
)

// pass is one turn of the loop: plan, apply, settle the units, have consumers asked, report. Whatever
// fails is retried from the start, from what is on disk then. What is new is published first, and the
// rest of the turn then comes after a rest.
func (l *loop) pass(ctx context.Context) {
	l.answerWatchdog()
	l.turned = l.Clock.Now()
	if !l.turned.Before(l.resync) {
		l.answers, l.followed = nil, nil // what was true then may not be now
	}
	l.want()
	err := l.express(ctx)
	if err == nil && l.resting() {
		return
	}
	l.rest = time.Time{}
	if err == nil {
		err = l.try(ctx)
	} else {
		l.actions.Unobserved()
	}
	if ctx.Err() != nil {
		return
	}
	l.account(err)
	l.anchor()
	if l.desired != nil {
		l.consumers.Probe(ctx, l.inPlace())
	}
	l.followFiles()
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
	if l.desired == nil {
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
	doubts := plan.Doubts(l.desired.Entries, l.entries, l.observed, l.unsynced)
	return l.actions.Reconcile(ctx, unitactions.Host{Desired: *l.desired, Inputs: l.inputs(l.observed, doubts), Seen: l.seen})
}

// plan looks at the host and decides (steps 1 and 2 of the flow).
func (l *loop) plan(ctx context.Context) (plan.Plan, error) {
	o, err := observe(ctx, l.Writer, plan.Queries(*l.desired, l.memory.State().Memory, l.Policy, l.known.at))
	l.observed, l.blind = o, false
	if err != nil {
		return plan.Plan{}, err
	}
	l.known.learn(o, *l.desired)
	return plan.Compute(l.input(*l.desired, o)), nil
}

// input is all that a decision about d depends on.
func (l *loop) input(d plan.Desired, o plan.Observed) plan.Input {
	return plan.Input{Desired: d, Observed: o, Memory: l.memory.State().Memory, Policy: l.Policy, Now: l.moment(),
		Known: l.known.contents, Answers: l.answers, Unsynced: l.unsynced}
}

// moment is the present, as far as it is believed.
func (l *loop) moment() plan.Moment {
	floor := l.Built
	for _, e := range l.desired.Entries {
		for _, c := range e.Certs {
			if c.NotBefore.After(floor) {
				floor = c.NotBefore
			}
		}
	}
	return plan.Moment{Boot: l.Clock.Boot(), Uptime: l.Clock.Uptime(), Wall: plan.Believe(l.Clock.Now(), l.reading.Time, floor)}
}

// account turns the outcome of a pass into trouble, its record and the next retry.
func (l *loop) account(err error) {
	now := l.Clock.Now()
	if !now.Before(l.resync) {
		l.resync = now.Add(l.backoff.Jitter(l.Times.Resync))
	}
	if err == nil {
		err = l.overlooked()
	}
	if err == nil {
		l.failures, l.retries, l.retry, l.trouble = 0, 0, time.Time{}, ""
		l.finish()
		return
	}
	if text := err.Error(); text != l.trouble {
		l.trouble = text
		l.Trail.Record(audit.Record{Kind: audit.Trouble, Message: text})
	}
	l.failures++
	// A pass that an event brought in the pause failed, too, and says nothing of how long to wait.
	if l.retry.IsZero() || !now.Before(l.retry) {
		l.retry = now.Add(l.backoff.Jitter(l.backoff.Pause(l.retries)))
		l.retries++
	}
}

// finish remembers what the pass asked for, so that the next can tell what is new.
func (l *loop) finish() {
	if l.desired == nil {
		return
	}
	l.done = make(map[plan.Key]plan.Digest, len(l.desired.Entries))
	for _, e := range l.desired.Entries {
		l.done[e.Key] = e.Digest
	}
}

// news gives what is in now and was not in before, so that a refusal is recorded once and not at
// every pass.
func news(before, now []plan.Refusal) []plan.Refusal {
	return slices.DeleteFunc(slices.Clone(now), func(r plan.Refusal) bool { return slices.Contains(before, r) })
}
