// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"errors"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/node-cert-agent/node-cert-agent/agent/check"
)

// What tells who set a host up. The machine config server has a host write the first two of them
// before its first boot proper, and the daemon keeps the third; kubeadm init and join write the last.
var (
	machineConfigFiles = []string{
		"/etc/ignition-machine-config-encapsulated.json",
		"/etc/ignition-machine-config-encapsulated.json.bak",
		"/etc/machine-config-daemon/currentconfig",
	}
	kubeadmFiles = []string{"/var/lib/kubelet/kubeadm-flags.env"}
)

// host finds who else manages the host.
func (c *collector) host() {
	there := func(path string) bool {
		_, err := os.Lstat(c.on(path))
		return err == nil
	}
	c.facts.Host = check.Host{MachineConfigDaemon: slices.ContainsFunc(machineConfigFiles, there),
		Kubeadm: slices.ContainsFunc(kubeadmFiles, there)}
	_, err := os.Stat("/sys/fs/selinux/enforce")
	c.facts.SELinux = err == nil && !c.facts.Plain
	var unknown user.UnknownUserError
	_, err = user.Lookup(c.opt.User)
	c.facts.NoUser = !c.facts.Plain && errors.As(err, &unknown)
}

// directories looks at those that managed files are in.
func (c *collector) directories() {
	for _, dir := range c.opt.Own {
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) && !c.facts.Plain {
			c.facts.Missing = append(c.facts.Missing, dir)
		}
	}
	seen := map[string]bool{}
	for _, spec := range c.opt.Settings.Policy.Files {
		if dir := spec.Directory(); !seen[dir] {
			seen[dir] = true
			c.facts.Directories = append(c.facts.Directories, c.directory(dir))
		}
	}
}

func (c *collector) directory(path string) check.Directory {
	d := check.Directory{Path: path, Real: path}
	at := c.on(path)
	info, err := os.Stat(at)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.Problem = "does not exist"
		return d
	case errors.Is(err, fs.ErrPermission):
		d.Problem = "may not be looked at"
		return d
	case err != nil:
		d.Problem = "cannot be looked at"
		return d
	case !info.IsDir():
		d.Problem = "is not a directory"
		return d
	}
	if real, err := filepath.EvalSymlinks(at); err == nil && !c.facts.Plain {
		d.Real = real
	}
	d.Mode, d.UID, d.Label = info.Mode(), int(info.Sys().(*syscall.Stat_t).Uid), label(at)
	return d
}

// label is the SELinux context of what is at path, empty if it has none that can be seen.
func label(path string) string {
	buf := make([]byte, 256)
	n, err := unix.Lgetxattr(path, "security.selinux", buf)
	if err != nil {
		return ""
	}
	return strings.TrimRight(string(buf[:n]), "\x00")
}
