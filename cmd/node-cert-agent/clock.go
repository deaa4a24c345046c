// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/node-cert-agent/node-cert-agent/agent/clock"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// systemClock is time as this host has it. It implements clock.Host.
type systemClock struct{ clock.System }

func (systemClock) Uptime() time.Duration { return uptime() }
func (systemClock) Boot() string          { return bootID() }

// uptime is CLOCK_BOOTTIME of clock_gettime(2).
func uptime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(err) // every Linux since 2.6.39 has it
	}
	return time.Duration(t.Nano())
}

// moment is what a preview has to know of the time.
func moment() plan.Moment { return plan.Moment{Boot: bootID(), Uptime: uptime()} }

// bootID is the kernel's; without it the invocation ID of a unit, which no two boots share either,
// still tells its runs apart.
var bootID = sync.OnceValue(func() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
})
