// SPDX-License-Identifier: Apache-2.0

package main

import (
	"runtime"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"
)

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
