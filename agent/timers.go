// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/node-cert-agent/node-cert-agent/agent/clock"
)

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

// next is when the resync, a retry, a unit's action or something that was put off comes up. What a
// pass that failed could not do waits for the retry.
func (l *loop) next() time.Time {
	if !l.rest.IsZero() {
		return l.rest
	}
	next := l.resync
	if !l.retry.IsZero() && l.retry.Before(next) {
		next = l.retry
	}
	for _, t := range l.timers() {
		if t.At.Before(next) && (l.retry.IsZero() || t.At.After(l.turned)) {
			next = t.At
		}
	}
	return next
}

// timers are those that are set. As long as nothing is desired, nothing is held, repaired or acted on.
func (l *loop) timers() (set []clock.Timer) {
	all := []clock.Timer{{What: "the end of a pause", At: l.resume}}
	if l.desired != nil {
		all = append(all, clock.Timer{What: "the end of a hold", At: l.release}, clock.Timer{What: "a repair that was put off", At: l.quarrels.next})
	}
	all = append(all, l.actions.Timers(l.desired != nil)...)
	return slices.DeleteFunc(all, func(t clock.Timer) bool { return t.At.IsZero() })
}

// overlooked is an error if something was due when a pass began and still is after it. The next pass would
// follow at once and for ever, so that such a defect costs a host all of a processor. As an error it is
// recorded and waits for the retry.
func (l *loop) overlooked() error {
	for _, t := range l.timers() {
		if !t.At.After(l.turned) {
			return fmt.Errorf("%s was due and is not dealt with, which is a defect of this program", t.What)
		}
	}
	return nil
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
