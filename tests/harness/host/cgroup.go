// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/wait"
)

// cgroupPrefix marks our groups in the hierarchies of the machine.
const cgroupPrefix = "node-cert-agent-host-"

// hierarchies lists the mount points in which each host needs a group of its own: cgroup v2 and,
// where the machine mixes versions, the named v1 hierarchy of systemd. Two containers started from
// the same group would use the same groups for their units.
func hierarchies() ([]string, error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	var dirs []string
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		if len(f) >= 4 && (f[2] == "cgroup2" || f[2] == "cgroup" && strings.Contains(","+f[3]+",", ",name=systemd,")) {
			dirs = append(dirs, f[1])
		}
	}
	if len(dirs) == 0 {
		return nil, errors.New("neither cgroup v2 nor the hierarchy of systemd is mounted")
	}
	return dirs, nil
}

// cgroupsOf makes the groups of a machine, afresh.
func cgroupsOf(machine string) ([]string, error) {
	if err := removeCgroups(machine); err != nil {
		return nil, err
	}
	dirs, err := hierarchies()
	if err != nil {
		return nil, err
	}
	for i, d := range dirs {
		dirs[i] = filepath.Join(d, cgroupPrefix+machine)
		if err := os.Mkdir(dirs[i], 0o755); err != nil {
			return nil, err
		}
	}
	return dirs, nil
}

// removeCgroups kills what runs in the machine's groups and removes them. The kernel reports a
// group as busy for a moment after its last process died, and offers no event for v1.
func removeCgroups(machine string) error {
	dirs, err := hierarchies()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, d := range dirs {
		d = filepath.Join(d, cgroupPrefix+machine)
		if err := wait.Success(ctx, func() error { return removeGroup(d) }); err != nil {
			return fmt.Errorf("remove the cgroup %s: %w", d, err)
		}
	}
	return nil
}

// removeGroup tries once to kill and remove a group and those below it.
func removeGroup(dir string) error {
	var groups []string
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && d.IsDir() {
			groups = append(groups, p)
		}
		return err
	})
	for i := len(groups) - 1; i >= 0 && err == nil; i-- {
		procs, _ := os.ReadFile(filepath.Join(groups[i], "cgroup.procs"))
		for pid := range strings.FieldsSeq(string(procs)) {
			if n, err := strconv.Atoi(pid); err == nil && n > 0 {
				_ = unix.Kill(n, unix.SIGKILL)
			}
		}
		if err = unix.Rmdir(groups[i]); errors.Is(err, unix.ENOENT) {
			err = nil
		}
	}
	return err
}
