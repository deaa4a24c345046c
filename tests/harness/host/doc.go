// SPDX-License-Identifier: Apache-2.0

// Package host boots a real Linux host for tests: systemd, D-Bus, polkit and journald, in a container
// made by systemd-nspawn(1) from a Debian root made by mmdebstrap(1). A host is ready in under a
// second, has its own disk layer, network namespace and cgroup, keeps its files over Reboot and
// Kill, and leaves nothing behind after Stop. What a dead test run left is cleared by the next Boot.
//
// It promises that nothing is pretended: units, users, sandboxes, sockets and the journal are the
// operating system's own. It does not promise what one kernel cannot give: Kill ends every process
// at once but the page cache survives, so it is not a loss of power for the disk; a sandboxed
// process shares the kernel, its clock and its sysctls with the machine that runs the test.
//
// It needs root, and it needs no systemd, D-Bus or machined outside. Sources: systemd-nspawn(1) and
// "The Container Interface" of systemd; network_namespaces(7), cgroups(7).
package host
