// SPDX-License-Identifier: Apache-2.0

// Package clock is time for the agent: what it reads it from, how long it pauses after a failure, and what time alone
// brings up.
//
// Only System reads a clock. Everybody else is given one, so that a test decides what time it is. The only randomness
// is jitter, and a test decides that, too.
package clock

import (
	"hash/fnv"
	"math/rand/v2"
	"time"
)

// Clock is the passing of time.
type Clock interface {
	Now() time.Time
	After(time.Duration) <-chan time.Time
}

// System is the clock of this machine.
type System struct{}

// Now implements Clock.
func (System) Now() time.Time { return time.Now() }

// After implements Clock.
func (System) After(d time.Duration) <-chan time.Time { return time.After(d) }

// Host is a Clock that also tells the runs of the host apart.
type Host interface {
	Clock
	// Uptime is for how long the host has been up, sleep included, and Boot identifies that run.
	Uptime() time.Duration
	Boot() string
}

// Timer is what time alone brings up, and a reconcile then deals with; a zero time never comes.
type Timer struct {
	What string
	At   time.Time
}

// Backoff is how long to pause after a failure.
type Backoff struct {
	// Min and Max bound the exponential delays.
	Min, Max time.Duration
	// Random draws from [0, n); nil means math/rand.
	Random func(n int64) int64
}

// Pause is that after so many failures before the last one, without jitter: it doubles from Min to Max.
func (b Backoff) Pause(failures int) time.Duration {
	d := b.Min
	for ; failures > 0 && d < b.Max; failures-- {
		d *= 2
	}
	return min(d, b.Max)
}

// Jitter is d more or less a tenth.
func (b Backoff) Jitter(d time.Duration) time.Duration {
	if b.Random != nil {
		return d - d/10 + time.Duration(b.Random(int64(d/5+1)))
	}
	return d - d/10 + rand.N(d/5+1)
}

// Place is this node's fixed place within d, so that a fleet does not move at once.
func Place(node, unit string, d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	h := fnv.New64a()
	h.Write([]byte(node + "\x00" + unit))
	return time.Duration(h.Sum64() % uint64(d))
}
