// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"time"
	"unsafe"
)

// clock is time as it passes on the host. All of it is virtual.
type clock struct {
	truth  time.Duration // since epoch
	offset time.Duration // by how much the wall clock is wrong
	mono   time.Duration // CLOCK_MONOTONIC: since this boot, without sleep
	up     time.Duration // CLOCK_BOOTTIME: since this boot, with sleep
	lived  time.Duration // up, summed over all boots
	boots  int
	set    bool // the wall clock was set once
	slept  bool // since this boot
}

func (c *clock) wall() time.Time { return epoch.Add(c.truth + c.offset) }

// now is the wall clock's time with a monotonic reading, as time.Now gives it.
func (c *clock) now() time.Time { return stamp(c.wall(), c.mono) }

func (c *clock) boot() string { return fmt.Sprint("boot ", c.boots) }

// advance lets time go by while the host is up and awake.
func (c *clock) advance(d time.Duration) {
	c.truth, c.mono, c.up, c.lived = c.truth+d, c.mono+d, c.up+d, c.lived+d
}

// sleep lets time go by while the host is suspended.
func (c *clock) sleep(d time.Duration) {
	c.truth, c.up, c.lived, c.slept = c.truth+d, c.up+d, c.lived+d, true
}

// stamp makes a time with a monotonic reading of our own. No function of package time does, and the loop's
// timers are about the difference: a clock that is set moves the one and not the other. The layout is that of
// time.Time since Go 1.9, and TestAStampHasBothReadings fails if it is another one.
func stamp(wall time.Time, mono time.Duration) time.Time {
	type layout struct {
		wall uint64
		ext  int64
		loc  *time.Location
	}
	const hasMonotonic, to1885 = 1 << 63, 2682288000 // seconds from 1885 to 1970
	t := layout{wall: hasMonotonic | uint64(wall.Unix()+to1885)<<30 | uint64(wall.Nanosecond()), ext: int64(mono) + 1,
		loc: time.UTC}
	return *(*time.Time)(unsafe.Pointer(&t))
}

// systemClock is the clock as the agent has it.
type systemClock struct{ w *env }

// Now implements clock.Clock.
func (c systemClock) Now() time.Time { return c.w.clock.now() }

// Uptime implements clock.Clock.
func (c systemClock) Uptime() time.Duration { return c.w.clock.up }

// Boot implements clock.Clock.
func (c systemClock) Boot() string { return c.w.clock.boot() }

// After implements clock.Clock. The loop calls it when it has nothing more to do, so it is here that the
// agent's turn ends: the host and the cluster go on, and what they do next is ready when the loop looks.
func (c systemClock) After(d time.Duration) <-chan time.Time { return c.w.agent.rest(d) }
