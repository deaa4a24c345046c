// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/clock"
	"github.com/node-cert-agent/node-cert-agent/agent/consumers"
	"github.com/node-cert-agent/node-cert-agent/agent/desired"
	"github.com/node-cert-agent/node-cert-agent/agent/files"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/agent/state"
	"github.com/node-cert-agent/node-cert-agent/agent/unitactions"
)

// loop is a running agent: the owners of its state. Only the goroutine of Run touches it.
type loop struct {
	*Agent
	memory    *state.Memory
	desired   *desired.State
	files     *files.Files
	actions   *unitactions.Actions
	consumers *consumers.Consumers
	trust     *trust
	schedule  *schedule
	followed  *followed

	once  bool // this is a command, not the service
	ready bool // systemd was told
}

// reconcile is one turn of the loop: plan, apply, have units and consumers asked, report. Whatever
// fails is retried from the start, from what is on disk then. What is new is published first, and the
// rest of the turn then comes after a rest.
func (l *loop) reconcile(ctx context.Context) {
	l.answerWatchdog()
	if l.schedule.begin() { // what was true then may not be now
		l.trust.answers, l.followed.directories = nil, nil
	}
	l.desired.Update()
	err := l.publishChanged(ctx)
	if err == nil && l.schedule.settling() {
		return
	}
	l.schedule.settlesAt = time.Time{}
	if err == nil {
		err = l.converge(ctx)
	} else {
		l.actions.Unobserved()
	}
	if ctx.Err() != nil {
		return
	}
	l.account(err)
	l.trust.use(l.files.Content(l.Policy.Trust.Source))
	if d := l.desired.Current(); d != nil {
		l.consumers.Probe(ctx, l.files.InPlace(*d))
	}
	l.follow()
	l.publish()
}

// publishChanged publishes what is new in a version of the ControllerConfig. After a failure it does not, because then
// file by file matters more than time.
func (l *loop) publishChanged(ctx context.Context) error {
	d := l.desired.Current()
	if d == nil || l.schedule.failures > 0 {
		return nil
	}
	written, err := l.files.Changed(ctx, *d, l.desired.Moment, l.trust.answers)
	if len(written) > 0 {
		l.replaced(written)
		l.schedule.pause()
	}
	return err
}

// converge brings the host to what is desired: plan, write, act. What failed keeps only the units waiting that read it.
func (l *loop) converge(ctx context.Context) error {
	d := l.desired.Current()
	if d == nil {
		l.announce()
		l.actions.Review(ctx)
		return nil
	}
	p, err := l.files.Plan(ctx, *d, l.desired.Moment, l.trust.answers)
	if err == nil {
		l.trust.ask(p.Question)
		l.desired.Planned(p.Entries)
		d = l.desired.Current() // what is revoked is carried on no more
		var written []files.Written
		written, err = l.files.Apply(ctx, *d, p, l.schedule.failures)
		l.replaced(written)
	}
	l.announce()
	inputs, known := l.files.Inputs(*d)
	if !known {
		l.actions.Unobserved()
		return err
	}
	unsettled := l.actions.Reconcile(ctx, unitactions.Host{Desired: *d, Inputs: inputs, Seen: l.files.Seen})
	return cmp.Or(err, unsettled)
}

// replaced tells the owner of consumers what was written.
func (l *loop) replaced(written []files.Written) {
	for _, w := range written {
		l.consumers.Replaced(w.Write, w.Replaced)
	}
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

// account notes what came of a turn.
func (l *loop) account(err error) {
	if news := l.schedule.end(err, l.timers()); news != "" {
		l.Trail.Record(audit.Record{Kind: audit.Error, Message: news})
	}
	if d := l.desired.Current(); d != nil && l.schedule.failures == 0 {
		l.files.Applied(*d)
	}
}

// follow has the directories of all managed files watched, and those that were named beside them.
func (l *loop) follow() {
	directories := l.files.Directories(l.desired.Current())
	for _, d := range l.Follow {
		directories[d] = true
	}
	l.followed.set(directories)
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

// status is everything that the reporter shows.
func (l *loop) status() report.Status {
	s := l.desired.Status()
	s.Version, s.Node, s.Error = l.Version, l.Node, l.schedule.lastError
	l.files.Status(&s, l.desired.Current())
	for i, f := range s.Files {
		if spec, ok := l.Policy.File(f.Field); ok {
			s.Files[i].Consumers = l.consumers.Status(spec, f.Digest)
		}
	}
	s.Units, s.Actions = l.actions.Status()
	return s
}

// timers are those that are set. As long as nothing is desired, nothing is held, repaired or acted on.
func (l *loop) timers() []clock.Timer {
	all, desired := []clock.Timer{l.desired.Timer()}, l.desired.Current() != nil
	if desired {
		all = append(all, l.files.Timers()...)
	}
	all = append(all, l.actions.Timers(desired)...)
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

// FileWatcher announces that something happened to a managed file, perhaps by our own hand.
type FileWatcher interface {
	Changed() <-chan struct{}
	// Set says which directories hold managed files now. An error names those that cannot be
	// watched; the resync still looks at them.
	Set(directories []string) error
}

// followed are the directories that are watched.
type followed struct {
	watcher     FileWatcher
	log         *zap.Logger
	directories map[string]bool // nil if they are to be set anew
	trouble     string          // why they could not be set the last time
}

// set has directories watched. They are set anew at each resync, because what was replaced or mounted over announces
// nothing.
func (f *followed) set(directories map[string]bool) {
	if maps.Equal(directories, f.directories) {
		return
	}
	trouble := ""
	if err := f.watcher.Set(slices.Sorted(maps.Keys(directories))); err != nil {
		if trouble = err.Error(); trouble != f.trouble {
			f.log.Warn("watching the managed directories", zap.Error(err))
		}
		directories = nil
	}
	f.directories, f.trouble = directories, trouble
}
