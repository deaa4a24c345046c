// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/user"
	"strconv"

	"github.com/node-cert-agent/node-cert-agent/agent/check"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/units"
)

const (
	agentService = "node-cert-agent.service"
	// ruleFile is where node-cert-agent-polkit.service writes the rule.
	ruleFile = "/etc/polkit-1/rules.d/50-node-cert-agent.rules"
)

// rule reads the installed one: the directory is closed to all but root and polkit.
func (p *survey) rule() {
	k := &p.facts.Polkit
	k.File, k.Want = ruleFile, units.PolkitRule(serviceUser, p.settings.Policy.Units)
	if p.facts.Plain {
		return
	}
	text, err := os.ReadFile(ruleFile)
	k.Rule, k.Seen = string(text), err == nil || errors.Is(err, fs.ErrNotExist)
}

// systemd asks it and polkit what they are and what they know of the allowlist, and whether they hold
// it.
func (p *survey) systemd(ctx context.Context) {
	if p.facts.Plain {
		return
	}
	bus, f := p.wiring.bus, &p.facts
	f.Systemd = toldVersion(bus.Systemd(ctx))
	if f.Systemd.Problem != "" {
		f.Polkit.Problem = f.Systemd.Problem
		return
	}
	f.Polkit.Version = toldVersion(bus.Polkit(ctx))
	if confined() {
		refused, err := bus.Refuses(ctx)
		f.Polkit.Tried, f.Polkit.Refused, f.Polkit.TryProblem = err == nil, refused, problem(err)
	}
	for _, u := range p.settings.Policy.Units {
		f.Units = append(f.Units, p.unit(ctx, u))
	}
	s, err := bus.State(ctx, agentService)
	f.Service.Looked, f.Service.Active = err == nil, s.Active
}

func (p *survey) unit(ctx context.Context, u plan.Unit) check.Unit {
	out := check.Unit{Unit: u}
	s, err := p.wiring.bus.State(ctx, u.Name)
	if err == nil && s.Exists {
		out.Exists = true
		out.Affected, err = p.wiring.bus.Affected(ctx, u)
	}
	if err == nil && s.Exists {
		out.Own, err = p.wiring.bus.Name(ctx, u.Name)
	}
	if out.Exists && err == nil && u.Verb == plan.Restart { // what we ship may name a program of another distribution
		var program string
		if program, err = p.wiring.bus.Program(ctx, u.Name); program != "" {
			if _, missing := os.Stat(program); errors.Is(missing, fs.ErrNotExist) {
				out.Absent = program
			}
		}
	}
	if path, err := p.wiring.bus.State(ctx, units.PathUnit(u)); err == nil {
		out.ByPath = path.Active
	}
	out.Problem = problem(err)
	return out
}

// confined reports whether we are the user that the rule is about: what root is granted says nothing.
func confined() bool {
	u, err := user.Lookup(serviceUser)
	return err == nil && u.Uid == strconv.Itoa(os.Geteuid())
}

func toldVersion(v string, err error) check.Version {
	return check.Version{Version: v, Problem: problem(err)}
}

func problem(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
