// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"hash/fnv"
	"math/rand/v2"
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
	sooner := func(t time.Time) {
		if !t.IsZero() && t.Before(next) && (l.retry.IsZero() || t.After(l.turned)) {
			next = t
		}
	}
	sooner(l.release)
	sooner(l.resume)
	sooner(l.quarrels.next)
	for _, u := range l.units {
		if u.running {
			sooner(u.overdue)
		} else {
			sooner(u.due)
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
