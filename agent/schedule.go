// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/clock"
	"github.com/node-cert-agent/node-cert-agent/agent/unitactions"
)

// Times are the agent's durations, from configuration.
type Times struct {
	// Resync is how often the host is looked at although nothing happened; jittered by a tenth.
	Resync time.Duration
	// SettleDelay is how long the agent does nothing else after it published a change, so that consumers read it
	// soon.
	SettleDelay time.Duration
	// RetryMin and RetryMax bound the exponential delays after a failure.
	RetryMin, RetryMax time.Duration
	unitactions.Times
	// Probe is how long a consumer may take to be seen with new bytes.
	Probe time.Duration
	// Watchdog is how often systemd wants to hear from the loop; zero means never.
	Watchdog time.Duration
}

// schedule is when the next reconcile is due that no event announces.
type schedule struct {
	clock   clock.Host
	backoff clock.Backoff
	times   Times

	lastError    string    // of the last reconcile
	failures     int       // reconciles that failed in a row
	retries      int       // those of them that set the pause before the next
	retry        time.Time // zero: nothing failed
	began        time.Time // when the last reconcile began
	settlesAt    time.Time // until when only what is new is published; zero: see publishChanged
	resync       time.Time
	nextWatchdog time.Time // when systemd is to hear from the loop again
}

// begin notes that a reconcile begins, and tells whether the resync is due: what was true before may not be now.
func (s *schedule) begin() (resync bool) {
	s.began = s.clock.Now()
	return !s.began.Before(s.resync)
}

// pause gives consumers time to read what was published. Changes that come one after the other do not prolong it.
func (s *schedule) pause() {
	if s.settlesAt.IsZero() {
		s.settlesAt = s.clock.Now().Add(s.times.SettleDelay)
	}
}

// settling tells whether the settle delay is not over.
func (s *schedule) settling() bool { return s.clock.Now().Before(s.settlesAt) }

// end turns the outcome of a reconcile, and what is set after it, into the next retry and into an error, which it gives
// if it is news.
func (s *schedule) end(err error, set []clock.Timer) (news string) {
	now := s.clock.Now()
	if !now.Before(s.resync) {
		s.resync = now.Add(s.backoff.Jitter(s.times.Resync))
	}
	if err == nil {
		err = s.overlooked(set)
	}
	if err == nil {
		s.failures, s.retries, s.retry, s.lastError = 0, 0, time.Time{}, ""
		return ""
	}
	if text := err.Error(); text != s.lastError {
		s.lastError, news = text, text
	}
	s.failures++
	// A reconcile that an event brought in the pause failed, too, and says nothing of how long to wait.
	if s.retry.IsZero() || !now.Before(s.retry) {
		s.retry = now.Add(s.backoff.Jitter(s.backoff.Pause(s.retries)))
		s.retries++
	}
	return news
}

// overlooked is an error if something was due when a reconcile began and still is after it. The next reconcile would
// follow at once and for ever, so that such a defect costs a host all of a processor. As an error it is
// recorded and waits for the retry.
func (s *schedule) overlooked(set []clock.Timer) error {
	for _, t := range set {
		if !t.At.After(s.began) {
			return fmt.Errorf("%s was due and is not dealt with, which is a defect of this program", t.What)
		}
	}
	return nil
}

// wake fires when the next thing is due that no event will announce.
func (s *schedule) wake(set []clock.Timer) <-chan time.Time {
	now := s.clock.Now()
	wait := s.next(set).Sub(now)
	if !s.nextWatchdog.IsZero() {
		wait = min(wait, s.nextWatchdog.Sub(now))
	}
	return s.clock.After(max(0, wait))
}

// due tells whether a reconcile is, and not only the watchdog.
func (s *schedule) due(set []clock.Timer) bool { return !s.clock.Now().Before(s.next(set)) }

// next is when the resync, a retry, a unit's action or something that was put off comes up. What a
// reconcile that failed could not do waits for the retry.
func (s *schedule) next(set []clock.Timer) time.Time {
	if !s.settlesAt.IsZero() {
		return s.settlesAt
	}
	// Some times have no monotonic reading. How far off each is says more than which comes first by the wall clock, when
	// that was set.
	now := s.clock.Now()
	sooner := func(a, b time.Time) bool { return a.Sub(now) < b.Sub(now) }
	next := s.resync
	if !s.retry.IsZero() && sooner(s.retry, next) {
		next = s.retry
	}
	for _, t := range set {
		if sooner(t.At, next) && (s.retry.IsZero() || t.At.After(s.began)) {
			next = t.At
		}
	}
	return next
}

// watchdog tells whether systemd is to hear now that the loop turns: at twice the pace it asks for.
func (s *schedule) watchdog() bool {
	now := s.clock.Now()
	if s.times.Watchdog <= 0 || now.Before(s.nextWatchdog) {
		return false
	}
	s.nextWatchdog = now.Add(s.times.Watchdog / 2)
	return true
}
