// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"os"

	"golang.org/x/sys/unix"
)

// relabel gives a fresh file the SELinux type of its directory, if it has another. Where a policy says nothing
// of who makes a file in a directory, the kernel has done that already. The reference policy says it of services
// in /etc: what they make there is etc_runtime_t, which not all may read that read etc_t. Polkitd may not
// (seen with Debian 12), and the allowlist was never in force.
//
// It never fails. A policy that forbids it says so in the audit log, `node-cert-agent check` shows the label,
// and a file with a label that was not meant is better than an old one.
func relabel(f, dir *os.File) {
	has, wants := label(f), label(dir)
	if l := retyped(has, wants); l != nil && !bytes.Equal(l, has) {
		_ = unix.Fsetxattr(int(f.Fd()), selinux, l, 0)
	}
}

// selinux is where a label is, see selinux(8).
const selinux = "security.selinux"

// label is empty if there is none.
func label(f *os.File) []byte {
	var buf [256]byte
	n, err := unix.Fgetxattr(int(f.Fd()), selinux, buf[:])
	if err != nil {
		return nil
	}
	return buf[:n]
}

// retyped is the label of a file with the type of a directory's; nil if one of the two is none. A label is
// user:role:type:level, the last missing where the policy has no levels, and ends with a NUL. User and level are
// left: to change them takes more.
func retyped(file, dir []byte) []byte {
	f, d := bytes.SplitN(file, []byte(":"), 4), bytes.SplitN(dir, []byte(":"), 4)
	if len(f) < 3 || len(d) != len(f) {
		return nil
	}
	f[2] = d[2]
	return bytes.Join(f, []byte(":"))
}
