// SPDX-License-Identifier: Apache-2.0

// Package simulate walks the agent's real loop through random histories of a host, and checks at every rest
// what docs/rationale.md promises.
//
// A walk is a setting (files, units, holds, what may go wrong) and a list of steps. Its neighbours are in
// memory and as honest as we can make them: a job reads its files early or late, runs on when the agent dies,
// and may never end; a power cut loses renames that were not synced; the wall clock is set while the
// monotonic one is not; any contact with the outside may be the last. Time is virtual.
//
// Each step draws from a seed of its own, so that a walk is repeatable, and still means the same when other
// steps are left out: that is how Shrink finds the shortest one that goes wrong.
//
// The package promises nothing about real disks, buses or clocks; tests/crash, tests/host and tests/vm do.
// How to run it, to read a trace and to add a step: docs/development/simulator.md.
package simulate
