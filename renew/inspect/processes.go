// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/node-cert-agent/node-cert-agent/renew/pair"
)

// ticks is how many clock ticks proc(5) counts in a second: USER_HZ, which is 100 on all that Linux runs on.
const ticks = 100

// process is one that runs a program which we know.
type process struct {
	pid     int
	uid     uint32
	program pair.Program
	argv    []string
	started time.Time
	// unit is the systemd service in whose control group it is; "" outside of any.
	unit string
}

// processes are those of the programs that we know, oldest first. One that ends meanwhile is left out.
func (h Host) processes() (all []process, err error) {
	entries, err := os.ReadDir(h.Proc)
	if err != nil {
		return nil, fmt.Errorf("list processes: %v", err)
	}
	booted, err := bootTime()
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if p, ok := h.process(pid, booted); ok {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b process) int { return a.started.Compare(b.started) })
	return all, nil
}

func (h Host) process(pid int, booted time.Time) (p process, ok bool) {
	dir := filepath.Join(h.Proc, strconv.Itoa(pid))
	text, err := os.ReadFile(dir + "/cmdline")
	if err != nil || len(text) == 0 {
		return p, false
	}
	p = process{pid: pid, argv: strings.Split(strings.TrimRight(string(text), "\x00"), "\x00")}
	if first := strings.Fields(p.argv[0]); len(first) > 1 {
		p.argv = first // k3s sets a title of several words
	}
	if p.program, ok = pair.Identify(p.argv); !ok {
		return p, false
	}
	info, err := os.Stat(dir)
	stat, err2 := os.ReadFile(dir + "/stat")
	group, err3 := os.ReadFile(dir + "/cgroup")
	if errors.Join(err, err2, err3) != nil {
		return p, false
	}
	p.uid, p.unit = info.Sys().(*syscall.Stat_t).Uid, unitOf(string(group))
	p.started, ok = startTime(stat, booted)
	return p, ok
}

// startTime is field 22 of stat, in ticks since the host started. The name of the program comes before it in
// parentheses, and may have any bytes in it.
func startTime(stat []byte, booted time.Time) (time.Time, bool) {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return time.Time{}, false
	}
	n, err := strconv.ParseInt(string(fields[19]), 10, 64)
	return booted.Add(time.Duration(n) * time.Second / ticks).UTC(), err == nil
}

// bootTime is when the host started by the clock as it stands now. The one in /proc/stat has whole seconds only.
func bootTime() (time.Time, error) {
	var since unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &since); err != nil {
		return time.Time{}, fmt.Errorf("read the clock: %v", err)
	}
	return time.Now().Add(-time.Duration(since.Nano())), nil
}

// unitOf is the service that a control group is or is in, by its path in either version's form: ID:CONTROLLERS:PATH.
// Only slices may be above it. A container can have groups of any name, but they are below its own.
func unitOf(cgroup string) string {
	for line := range strings.Lines(cgroup) {
		_, rest, _ := strings.Cut(line, ":")
		controllers, path, ok := strings.Cut(strings.TrimSpace(rest), ":")
		if !ok || controllers != "" && controllers != "name=systemd" {
			continue
		}
		for part := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
			if strings.HasSuffix(part, ".service") {
				return part
			}
			if !strings.HasSuffix(part, ".slice") {
				break
			}
		}
	}
	return ""
}
