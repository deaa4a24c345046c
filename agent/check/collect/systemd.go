// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/node-cert-agent/node-cert-agent/agent/check"
	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
)

// Units of ours.
const (
	agentService  = "node-cert-agent.service"
	writerService = "node-cert-agent-writer.service"
)

// systemd asks the reloader what systemd is and what it knows of the allowlist.
func (c *collector) systemd(ctx context.Context) {
	if c.facts.Plain {
		return
	}
	f := &c.facts
	pids, known := processes(agentService)
	f.Service.Looked, f.Service.Active = known, len(pids) > 0
	if !f.Root && !c.isServiceUser() {
		return // the socket is closed to everybody else
	}
	v, err := c.access.Systemd.Version(ctx)
	f.Reloader.Asked, f.Reloader.Problem, f.Systemd = true, problem(err), v
	if err != nil {
		return
	}
	for _, u := range c.opt.Settings.Policy.Units {
		f.Units = append(f.Units, c.unit(ctx, u))
	}
}

func (c *collector) unit(ctx context.Context, u unitplan.Unit) check.Unit {
	out := check.Unit{Unit: u}
	all, err := c.access.Systemd.Look(ctx, u.Name)
	if err != nil {
		out.Problem = err.Error()
		return out
	}
	s := all[0]
	out.Exists, out.Own, out.Affected = s.State.Exists, s.Name, s.Affected
	if s.Program != "" { // what we ship may name a program of another distribution
		if _, err := os.Stat(s.Program); errors.Is(err, fs.ErrNotExist) {
			out.Absent = s.Program
		}
	}
	return out
}

// processes are those of a service, as its control group has them; known is false where it cannot be found.
// systemd itself is not asked for that: only the reloader may ask it, and only about the allowlist.
func processes(service string) (pids []int, known bool) {
	for _, top := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/systemd"} { // of version 2, and of version 1
		slice := filepath.Join(top, "system.slice")
		if _, err := os.Stat(slice); err != nil {
			continue
		}
		known = true
		text, _ := os.ReadFile(filepath.Join(slice, service, "cgroup.procs"))
		for field := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
		if len(pids) > 0 {
			break
		}
	}
	return pids, known
}

// isServiceUser reports whether we are the service's user: what root is granted says nothing.
func (c *collector) isServiceUser() bool {
	u, err := user.Lookup(c.opt.User)
	return err == nil && u.Uid == strconv.Itoa(os.Geteuid())
}
