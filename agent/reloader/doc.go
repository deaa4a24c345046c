// SPDX-License-Identifier: Apache-2.0

// Package reloader is the process that may act on systemd units, and the only one of ours that reaches
// D-Bus. It owns the no-reboot allowlist: it reads the root-owned configuration itself, and answers three
// requests over a unix socket (Serve and Client): Observe (units of the allowlist: state, what the verb
// would act on along with them), Act (one unit: the configured verb, awaited to its end) and Version (of
// systemd).
//
// A request names units and nothing else. Verb and what may be affected come from the
// configuration; package decide.go says whether an action is allowed now: the unit is on the allowlist
// under its own name, the administrator has accepted each unit that systemd would act on with it, none of
// them comes near its start limit, systemd has no job for it, and it was not acted on too often.
//
// It promises to a caller that is fully compromised no more than to see the state of units on the
// allowlist, and to have the configured verb carried out on one of them at most once a second, and a
// start at most as often as leaves most of the unit's start limit to others. Each action is recorded on
// the log before and after it, and each refusal, with the peer's user and process, which the kernel told.
//
// It does not decide what is pending and does not repeat what failed: that is package agent's. It does not
// cancel a job that takes long. It does not speak D-Bus: package agent/units is the Systemd of the
// process.
//
// Sources: unix(7) for SO_PEERCRED, systemd.unit(5) for start limits, systemctl(1) for job modes.
package reloader
