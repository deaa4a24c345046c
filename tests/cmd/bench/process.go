// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// The services that are measured.
const (
	agentUnit    = "node-cert-agent.service"
	writerUnit   = "node-cert-agent-writer.service"
	reloaderUnit = "node-cert-agent-reloader.service"
	baselineUnit = "baseline.service"
)

// use is what a process has and has used, from proc(5).
type use struct {
	resident, anonymous, peak float64 // MiB; the peak is of what was resident
	threads                   int
	cpu                       time.Duration // from schedstat: times in ticks are too coarse here
	switches                  int           // voluntary
}

// errNotRunning is a service without a main process.
var errNotRunning = errors.New("it does not run")

// use looks at a service's main process.
func (e *env) use(ctx context.Context, unit string) (u use, err error) {
	out, err := e.Host.Run(ctx, "systemctl", "show", "--property=MainPID", "--value", unit)
	if err != nil {
		return u, err
	}
	pid := strings.TrimSpace(out)
	if pid == "0" {
		return u, fmt.Errorf("%s: %w", unit, errNotRunning)
	}
	proc := e.Host.Path(filepath.Join("/proc", pid))
	status, err := fields(filepath.Join(proc, "status"))
	if err != nil {
		return u, err
	}
	u.resident, u.anonymous = float64(status["VmRSS"])/1024, float64(status["RssAnon"])/1024
	u.peak, u.threads = float64(status["VmHWM"])/1024, status["Threads"]
	tasks, err := filepath.Glob(filepath.Join(proc, "task", "*"))
	if err != nil || len(tasks) == 0 {
		return u, fmt.Errorf("%s: no threads in %s: %v", unit, proc, err)
	}
	for _, task := range tasks {
		status, err := fields(filepath.Join(task, "status"))
		if err != nil {
			return u, err
		}
		u.switches += status["voluntary_ctxt_switches"]
		stat, err := os.ReadFile(filepath.Join(task, "schedstat"))
		if err != nil {
			return u, err
		}
		ran, _, _ := strings.Cut(string(stat), " ")
		ns, err := strconv.ParseInt(ran, 10, 64)
		if err != nil {
			return u, err
		}
		u.cpu += time.Duration(ns)
	}
	return u, nil
}

// fields are the numbers of a file like /proc/PID/status.
func fields(file string) (map[string]int, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	out := map[string]int{}
	for line := range strings.Lines(string(data)) {
		name, rest, _ := strings.Cut(line, ":")
		if words := strings.Fields(rest); len(words) > 0 {
			if n, err := strconv.Atoi(words[0]); err == nil {
				out[name] = n
			}
		}
	}
	return out, nil
}
