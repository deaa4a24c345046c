// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// becomeServiceUser gives up being root for good: what is written from now on is the service's own.
func (f *flags) becomeServiceUser() error {
	if f.become != nil {
		return f.become()
	}
	if f.plain() || os.Geteuid() != 0 {
		return nil
	}
	u, err := user.Lookup(serviceUser)
	if err != nil {
		return fmt.Errorf("looking up the service user: %v", err)
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return fmt.Errorf("looking up the service user: %v", err)
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return fmt.Errorf("looking up the service user: %v", err)
	}
	return becomeUser(uid, gid)
}

// becomeUser changes user and groups for good, and closes the memory again, which the kernel opens with that as
// far as fs.suid_dumpable says (2 where systemd-coredump is).
func becomeUser(uid, gid int) error {
	defer disableCoreDumps()
	for _, err := range []error{syscall.Setgroups([]int{gid}), syscall.Setgid(gid), syscall.Setuid(uid)} {
		if err != nil {
			return fmt.Errorf("becoming the service user: %v", err)
		}
	}
	return nil
}

func serviceUID() (uint32, error) {
	u, err := user.Lookup(serviceUser)
	if err != nil {
		return 0, fmt.Errorf("looking up the service user: %v", err)
	}
	n, err := strconv.ParseUint(u.Uid, 10, 32)
	return uint32(n), err
}
