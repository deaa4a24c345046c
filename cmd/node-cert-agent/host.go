// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/user"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/node-cert-agent/node-cert-agent/agent/clock"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// becomeServiceUser gives up being root for good: what is written from now on is the service's own.
func (f *flags) becomeServiceUser() error { return f.becomeUserOf(serviceUser) }

// becomeUserOf is the same for another of our users.
func (f *flags) becomeUserOf(name string) error {
	if f.become != nil {
		return f.become()
	}
	if f.plain() || os.Geteuid() != 0 {
		return nil
	}
	uid, gid, err := idsOf(name)
	if err != nil {
		return err
	}
	return becomeUser(uid, gid)
}

// becomeUser changes user and groups for good, and closes the memory again, which the kernel opens with that as
// far as fs.suid_dumpable says (2 where systemd-coredump is).
func becomeUser(uid, gid int) error {
	defer disableCoreDumps()
	for _, err := range []error{syscall.Setgroups([]int{gid}), syscall.Setgid(gid), syscall.Setuid(uid)} {
		if err != nil {
			return fmt.Errorf("becoming the service user: %v", err)
		}
	}
	return nil
}

// idsOf are the numbers of one of our users.
func idsOf(name string) (uid, gid int, err error) {
	u, err := user.Lookup(name)
	if err == nil {
		uid, err = strconv.Atoi(u.Uid)
	}
	if err == nil {
		gid, err = strconv.Atoi(u.Gid)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("looking up the service user: %v", err)
	}
	return uid, gid, nil
}

// systemClock is time as this host has it. It implements clock.Host.
type systemClock struct{ clock.System }

func (systemClock) Boot() string { return bootID() }

// Uptime is CLOCK_BOOTTIME of clock_gettime(2).
func (systemClock) Uptime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(err) // every Linux since 2.6.39 has it
	}
	return time.Duration(t.Nano())
}

// moment is what a preview has to know of the time.
func moment() plan.Moment { return plan.Moment{Boot: bootID(), Uptime: systemClock{}.Uptime()} }

// bootID is the kernel's; without it the invocation ID of a unit, which no two boots share either,
// still tells its runs apart.
var bootID = sync.OnceValue(func() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
})

// tuneRuntime fits the runtime to processes that do one small thing at a time and are looked at for what
// they hold. A change goes from goroutine to goroutine, and on one processor no second thread has to
// be woken for that. Live data take less than a megabyte, and the garbage that the default lets come
// together before it collects, four, would be most of the process. Measured in docs/performance.md.
func tuneRuntime() {
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(25)
	debug.SetMemoryLimit(memoryLimit)
}

// memoryLimit, in bytes, is above what the runtime takes for a usual object, so that it collects no more
// often for one; an object of megabytes costs three less at its peak.
const memoryLimit = 12 << 20

// idleBeforeGC is how long nothing may have happened before memory is given back.
const idleBeforeGC = time.Second

// freeMemoryWhenIdle returns what to call after each reconcile: once reconciles have ceased, memory goes back to the
// system. Changes are rare, and this is the cheap lever on resident memory where a tight GOMEMLIMIT is
// a trap (docs/performance.md). It costs more than a reconcile, and reconciles come in twos and threes.
func freeMemoryWhenIdle() func() {
	t := time.AfterFunc(idleBeforeGC, func() {
		runtime.GC() // a sync.Pool lets go of what it holds at the second collection only
		debug.FreeOSMemory()
	})
	return func() { t.Reset(idleBeforeGC) }
}

// disableCoreDumps closes the memory of this process, in which there are tokens and keys, to core dumps and to
// other processes without privilege, those of the same user included. RLIMIT_CORE alone does not: it
// means nothing to a handler that the kernel pipes core dumps to. Sources: core(5), ptrace(2),
// PR_SET_DUMPABLE in prctl(2). With these arguments the call cannot fail.
func disableCoreDumps() {
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}
