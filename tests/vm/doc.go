// SPDX-License-Identifier: Apache-2.0

// Package vm boots the package in a virtual machine, for what a container cannot have: a kernel with SELinux
// that enforces, and a power cut, after which nothing is left but what was on the disk.
//
// A machine is qemu without hardware help (TCG), so that it runs anywhere, at about a tenth of the speed. Its root
// file system is that of the test hosts with Debian's kernel and SELinux policy, its package the one of this
// tree, and it has no network. Commands go in and answers come out by its second serial port. A power cut is
// SIGKILL for qemu: what the guest had not written is gone, what it had is on the disk of the outer machine,
// whose cache is not in the way (cache=none). It does not tell what a disk does that loses writes which it reported
// as done.
//
// The tests carry the build tag vm and are run by `make test-selinux` and `make test-powercut`; they take minutes
// and are no part of `make test`. They need root, and Debian 12 on amd64, whose policy and kernel they know.
// Debian's policy is the reference policy, not Red Hat's: it says that the units and the way files are made agree
// with a policy that enforces, not that they do with every one.
package vm
