// SPDX-License-Identifier: Apache-2.0

// Package units is D-Bus: it looks at systemd units and acts on them for package reloader, as its Systemd.
//
// It promises that nothing but reload, try-restart and, for a oneshot, restart is ever asked for, always in
// job mode "fail", which cancels no other job, that an action counts as done only if the job's result is "done" and the
// unit is active after it (or a oneshot that ended well), that actions on different units do not wait for each
// other, that a job is waited for until its end is announced or systemd has it no more, and that a lost bus
// is dialled again with the next call. It also finds which other units an action would act on.
//
// It uses the system bus only, and not systemd's private socket. It does not decide what may be done,
// repeat what failed, or cancel a job that takes long.
//
// Sources: org.freedesktop.systemd1(5), the D-Bus specification.
package units
