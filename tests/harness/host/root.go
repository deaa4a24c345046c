// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// packages go into the root on top of the distribution's essential ones.
var packages = []string{"systemd", "systemd-sysv", "dbus", "polkitd", "strace", "ca-certificates", "containerd"}

// finish runs in the new root's parent with the root as $1. It takes away what belongs to the
// machine that made the root, and what would only slow a test host down or talk to the network; a
// host that needs containerd starts it.
// Each host gets its own /etc/hostname and /etc/machine-id. The journal's directory makes the journal
// outlive a reboot.
const finish = `set -e
rm -f "$1/etc/hostname" "$1/etc/resolv.conf" "$1/etc/apt/apt.conf.d/99mmdebstrap"
rm -rf "$1/etc/apt/sources.list.d" "$1/var/lib/apt/lists" "$1/var/cache/apt"
: > "$1/etc/machine-id"
install -d -m 2755 "$1/var/log/journal"
rm "$1/etc/systemd/system/multi-user.target.wants/containerd.service"
for unit in systemd-firstboot.service ldconfig.service getty.target console-getty.service \
	apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer; do
	ln -sf /dev/null "$1/etc/systemd/system/$unit"
done
`

// Root returns the directory tree that all test hosts share as their lowest layer, and makes it when
// it is missing, which takes about half a minute and needs the distribution's mirror. More packages make
// it another root. It lies below
// the user's cache directory, in a directory that only root may enter since it holds set-uid
// programs, under a name that changes with its recipe and the release. Two makers do not disturb each
// other: the second waits for the first.
//
// The error says in plain words what the machine lacks.
func Root(ctx context.Context, which Release, more ...string) (string, error) {
	if err := missing(); err != nil {
		return "", err
	}
	store, err := storeDir()
	if err != nil {
		return "", err
	}
	b, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return "", err
	}
	r, err := thisRelease(b)
	if err != nil {
		return "", err
	}
	include := append(slices.Clone(packages), more...)
	recipe := sha256.Sum256([]byte(strings.Join(include, " ") + "\n" + strings.Join(mmdebstrapOptions, " ") + "\n" +
		finish))
	codename := r.of(which)
	root := filepath.Join(store, codename+"-"+hex.EncodeToString(recipe[:6]))
	if _, err := os.Stat(root); err == nil {
		return root, nil
	}
	lock, err := lockFile(ctx, root+".lock")
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if _, err := os.Stat(root); err == nil {
		return root, nil
	}
	return root, makeRoot(ctx, r, codename, root, include)
}

// missing names what the machine lacks to run a test host.
func missing() error {
	var lacks []string
	if os.Geteuid() != 0 {
		lacks = append(lacks, "root privileges (run as root)")
	}
	for _, tool := range []struct{ program, pkg string }{
		{"systemd-nspawn", "systemd-container"}, {"mmdebstrap", "mmdebstrap"}, {"journalctl", "systemd"},
		{"nsenter", "util-linux"},
	} {
		if _, err := exec.LookPath(tool.program); err != nil {
			lacks = append(lacks, fmt.Sprintf("the program %s (apt-get install %s)", tool.program, tool.pkg))
		}
	}
	if b, err := os.ReadFile("/proc/filesystems"); err == nil && !bytes.Contains(b, []byte("\toverlay\n")) {
		lacks = append(lacks, "the overlay file system (modprobe overlay)")
	}
	if len(lacks) > 0 {
		return fmt.Errorf("a test host needs %s", strings.Join(lacks, ", and "))
	}
	return nil
}

// storeDir is where roots and running hosts are kept.
func storeDir() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "node-cert-agent", "hosts")
	if strings.ContainsAny(dir, `:,\`) {
		return "", fmt.Errorf("%s: the name holds a character that separates options of mount(8)", dir)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	fi, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	// Whoever else could rename things here could have us boot, as root, a system of theirs.
	if st := fi.Sys().(*syscall.Stat_t); !fi.IsDir() || st.Uid != 0 || fi.Mode().Perm()&0o022 != 0 {
		return "", fmt.Errorf("%s: is not a directory that only root may write", dir)
	}
	return dir, nil
}

// lockFile waits for an exclusive lock, which ends with the process at the latest: children do not
// inherit it.
func lockFile(ctx context.Context, name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	locked := make(chan error, 1)
	go func() {
		for {
			if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
				locked <- err
				return
			}
		}
	}()
	select {
	case err = <-locked:
	case <-ctx.Done():
		// The waiting goroutine keeps the descriptor until it has the lock, and drops both.
		go func() { <-locked; f.Close() }()
		return nil, fmt.Errorf("wait for the lock %s: %w", name, ctx.Err())
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %v", name, err)
	}
	return f, nil
}

var mmdebstrapOptions = []string{"--mode=root", "--format=directory", "--variant=minbase",
	"--aptopt=Acquire::Languages \"none\"", "--dpkgopt=force-unsafe-io",
	"--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/locale/*",
	"--dpkgopt=path-exclude=/usr/share/doc/*"}

func makeRoot(ctx context.Context, r release, codename, root string, include []string) error {
	lines, opts, err := aptSources(ctx, r, codename)
	if err != nil {
		return err
	}
	if err := removeUnfinished(root); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(root), filepath.Base(root)+".new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	list := filepath.Join(tmp, "sources.list")
	if err := os.WriteFile(list, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		return err
	}
	args := append([]string{"mmdebstrap"}, mmdebstrapOptions...)
	args = append(args, "--include="+strings.Join(include, ","))
	for _, o := range opts {
		args = append(args, "--aptopt="+o)
	}
	made := filepath.Join(tmp, "root")
	args = append(args, "--customize-hook="+finish, "", made, list)

	// The umask would otherwise cut the modes of directories in the root.
	cmd := exec.CommandContext(ctx, "/bin/sh", append([]string{"-c", `umask 022; exec "$@"`, "sh"}, args...)...)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	defer dieWithUs(cmd)()
	// In a mount namespace of its own, nothing mounted in the root can outlive an interrupted run and
	// then be hit by the removal of the tree.
	cmd.SysProcAttr.Unshareflags = unix.CLONE_NEWNS
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("make the root of test hosts: mmdebstrap: %v: %s", err, lastLines(log.String(), 5))
	}
	return os.Rename(made, root)
}

// removeUnfinished takes away what interrupted makers of this root left. The lock is held, so none
// of them is alive.
func removeUnfinished(root string) error {
	left, err := filepath.Glob(root + ".new-*")
	for _, d := range left {
		err = errors.Join(err, os.RemoveAll(d))
	}
	return err
}

// output runs a program of this machine and returns its standard output.
func output(ctx context.Context, name string, args ...string) (string, error) {
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %v: %s", name, err, lastLines(errs.String(), 3))
	}
	return out.String(), nil
}
