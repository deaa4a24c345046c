// SPDX-License-Identifier: Apache-2.0

// Package units acts on systemd units that are on the allowlist, over D-Bus, and waits for what
// becomes of it. It also writes the polkit rule by which systemd holds the same list.
//
// It promises that nothing but reload, try-restart and, for a oneshot, restart is ever asked for, that
// an action counts as done only if the job's result is "done" and the unit is active after it (or a
// oneshot that ended well), that actions on different units do not wait for each other, and that a lost
// bus is dialled again with the next call. It also finds which other units an action would drag along.
//
// It uses the system bus only: systemd's private socket would pass by polkit. It does not decide
// what is owed, repeat what failed, or cancel a job that takes long.
//
// Sources: org.freedesktop.systemd1(5), the D-Bus specification, polkit(8).
package units
