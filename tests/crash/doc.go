// SPDX-License-Identifier: Apache-2.0

// Package crash kills a commit at every system call that it makes, and lets every kind of call fail,
// with strace(1). After each it looks whether the invariant of docs/rationale.md holds: every managed
// file is a complete version or untouched (I1), nothing foreign is touched (I3), and the next writer
// reaches the wanted end without leftovers.
//
// It does not cut the power: that a rename survives it is up to fsync, whose number is counted here.
package crash
