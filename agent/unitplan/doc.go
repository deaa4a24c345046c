// SPDX-License-Identifier: Apache-2.0

// Package unitplan decides which allowlisted units have to load what is on disk. It is pure: from what package plan
// says of files, what systemd says of a unit (State) and what the agent remembers of it (Loaded) it derives a
// Decision, which can express no unit that is not on the allowlist, and no verb but the one that the
// administrator chose.
//
// It also owns the vocabulary of units that the other packages share. It promises that a unit which is not known to
// have loaded what is on disk has its action pending however often the agent was killed. It does not ask systemd and
// does not read the clock.
package unitplan
