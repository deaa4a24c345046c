// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"time"

	"go.uber.org/zap"
)

// jitter is d more or less a tenth.
func (l *loop) jitter(d time.Duration) time.Duration {
	if l.Random != nil {
		return d - d/10 + time.Duration(l.Random(int64(d/5+1)))
	}
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
		if t.at.Before(next) && (l.retry.IsZero() || t.at.After(l.turned)) {
			next = t.at
		}
	}
	return next
}

// timer is what time alone brings up, and a pass then deals with.
type timer struct {
	what string
	at   time.Time
}

// timers are those that are set. As long as nothing is desired, nothing is held, repaired or acted on.
func (l *loop) timers() (set []timer) {
	all := []timer{{"the end of a pause", l.resume}}
	if l.desired != nil {
		all = append(all, timer{"the end of a hold", l.release}, timer{"a repair that was put off", l.quarrels.next})
	}
	for _, u := range l.Policy.Units {
		switch s := l.units[u.Name]; {
		case s == nil:
		case s.running:
			all = append(all, timer{"the job of " + u.Name, s.overdue})
		case l.desired != nil:
			all = append(all, timer{"the action on " + u.Name, s.again})
		}
	}
	return slices.DeleteFunc(all, func(t timer) bool { return t.at.IsZero() })
}

// overlooked is an error if something was due when a pass began and still is after it. The next pass would
// follow at once and for ever, so that such a defect costs a host all of a processor. As an error it is
// recorded and waits for the retry.
func (l *loop) overlooked() error {
	for _, t := range l.timers() {
		if !t.at.After(l.turned) {
			return fmt.Errorf("%s was due and is not dealt with, which is a defect of this program", t.what)
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
