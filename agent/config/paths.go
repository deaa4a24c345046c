// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// offLimits are directories in which no managed file may be, and why. The list guards against
// mistakes, not against root: certificates do harm there, or do not last, or others can replace them.
var offLimits = []struct{ why, dirs string }{
	{"belongs to the kernel", "/proc /sys /dev"},
	{"belongs to node-cert-agent itself", "/etc/node-cert-agent /run/node-cert-agent /var/run/node-cert-agent " +
		"/var/lib/node-cert-agent /var/lib/private/node-cert-agent /usr/lib/node-cert-agent /usr/share/node-cert-agent"},
	{"tells systemd, D-Bus or polkit what to do",
		"/etc/systemd /run/systemd /var/run/systemd /usr/lib/systemd /lib/systemd " +
			"/etc/dbus-1 /run/dbus /var/run/dbus /usr/share/dbus-1 /etc/polkit-1 /run/polkit-1 /usr/share/polkit-1 " +
			"/etc/udev /run/udev /run/credentials"},
	{"holds static pods", "/etc/kubernetes/manifests"},
	{"is needed to boot", "/boot /efi"},
	{"holds programs", "/bin /sbin /lib /lib64 /usr/bin /usr/sbin /usr/lib /usr/lib64 /usr/libexec"},
	{"can be written by everyone", "/tmp /var/tmp"},
}

// checkFile decides whether a field may have this path.
func checkFile(id plan.Field, file string) error {
	for i := 0; i < len(file); i++ {
		if file[i] < ' ' || file[i] == 0x7f {
			return fmt.Errorf("holds the byte %#02x", file[i])
		}
	}
	switch {
	case !path.IsAbs(file) || path.Clean(file) != file:
		return fmt.Errorf("%.256q is not an absolute path in its shortest form", file)
	case len(file) > 3072:
		return fmt.Errorf("%d bytes long; want at most 3072", len(file))
	case path.Dir(file) == "/":
		return errors.New("lies in the root directory")
	}
	for _, o := range offLimits {
		for dir := range strings.FieldsSeq(o.dirs) {
			if file == dir || strings.HasPrefix(file, dir+"/") {
				return fmt.Errorf("%s %s: no managed file may be there", dir, o.why)
			}
		}
	}
	return plan.FileSpec{Field: id, Path: file}.CheckPlaceholders()
}

// collide reports whether two files are, or could for some entry be, the same, or one a directory
// that the other lies in.
func collide(a, b string) bool {
	x, y := strings.Split(a, "/"), strings.Split(b, "/")
	for i := range min(len(x), len(y)) {
		if !sameElement(x[i], y[i]) {
			return false
		}
	}
	return true
}

func sameElement(a, b string) bool {
	if a == b {
		return true
	}
	return fits(a, b) || fits(b, a)
}

// fits reports whether the placeholder in pattern can stand for what name has in its place.
func fits(pattern, name string) bool {
	before, after, ok := strings.Cut(pattern, "{")
	if !ok {
		return false
	}
	_, after, _ = strings.Cut(after, "}")
	return len(name) > len(before)+len(after) && strings.HasPrefix(name, before) && strings.HasSuffix(name, after)
}
