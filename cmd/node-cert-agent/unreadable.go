// SPDX-License-Identifier: Apache-2.0

package main

import "golang.org/x/sys/unix"

// unreadable closes the memory of this process, in which there are tokens and keys, to core dumps and to
// other processes without privilege, those of the same user included. RLIMIT_CORE alone does not: it
// means nothing to a handler that the kernel pipes core dumps to. Sources: core(5), ptrace(2),
// PR_SET_DUMPABLE in prctl(2). With these arguments the call cannot fail.
func unreadable() {
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}
