// SPDX-License-Identifier: Apache-2.0

package unitactions

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/printable"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
)

// Host is what units are judged by.
type Host struct {
	Desired plan.Desired
	// Inputs tells what a unit reads, and what of that is in doubt.
	Inputs func(unit string) unitplan.Inputs
	// Seen tells whether somebody could look at what a unit reads since the last commit.
	Seen func(unit string) bool
}

// Reconcile asks for each unit whether it has loaded what is on disk, and dispatches what is pending and due (steps 8
// and 9 of ARCHITECTURE.md). A unit that cannot be asked about does not hold up the others, and a file that is in doubt
// only those units that read it.
func (a *Actions) Reconcile(ctx context.Context, h Host) error {
	var first error
	for _, u := range a.Policy.InOrder() {
		if err := a.reconcileUnit(ctx, h, u); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// Unobserved is Reconcile while nobody can say what is on disk.
func (a *Actions) Unobserved() {
	for _, s := range a.units {
		if s.state == report.UpToDate {
			s.state, s.reason = report.Unknown, "what is on disk is not known"
		}
	}
}

func (a *Actions) reconcileUnit(ctx context.Context, h Host, u unitplan.Unit) error {
	s := a.unit(u.Name)
	if s.running {
		a.watchJob(u, s)
		return nil
	}
	s.again = time.Time{}
	now, affected, err := a.askSystemd(ctx, u)
	if err != nil {
		s.state, s.reason = report.Unknown, printable.Text(err.Error())
		return fmt.Errorf("asking systemd about %s: %v", u.Name, err)
	}
	if why := u.Refuse(affected); why != "" {
		a.refuseUnit(u, s, why)
		return nil
	}
	in := h.Inputs(u.Name)
	err = a.confirm(ctx, u, s, in, h.Seen(u.Name))
	loaded, known := a.Memory.State().Units[u.Name]
	if err != nil && loaded.Unknown { // its job is done: it has only to be asked who loads what it made
		s.state, s.reason = report.Unknown, printable.Text(err.Error())
		return err
	}
	run := now.AsOf(a.Clock.Now(), a.Clock.Uptime())
	decision := unitplan.Decide(u, run, in, loaded, known)
	if decision.Outdated {
		err = cmp.Or(a.outdate(u, run, in), err)
	}
	switch decision.Action {
	case unitplan.Wait:
		s.state, s.reason = report.Unknown, decision.Why
		return err
	case unitplan.Act:
		if !a.isDue(h.Desired, u, s, in, decision.Why) || a.putOff(ctx, u, s, now, affected) {
			return err
		}
		return cmp.Or(a.dispatch(ctx, u, s, in, now, affected, decision.Why), err)
	case unitplan.Adopt:
		if oneshot := a.pendingPrerequisite(u.Name); oneshot != "" {
			s.state, s.reason = report.Unknown, "waits for "+oneshot
			return err
		}
		a.Trail.Record(audit.Record{Kind: audit.UnitAdopted, Message: u.Name + ": " + decision.Why}.
			With(audit.Unit, u.Name).With(audit.Inputs, in.Digest.String()))
		if err = a.load(ctx, u, in, now); err != nil {
			s.state, s.reason = report.Unknown, printable.Text(err.Error())
			return err
		}
	}
	*s = unit{state: report.UpToDate, reason: decision.Why, lastDone: s.lastDone}
	if !now.Exists || !now.Active && u.Verb != unitplan.Restart {
		s.state = report.NotRunning
	}
	return err
}

// outdate remembers that a run of a unit has not loaded what is on disk.
func (a *Actions) outdate(u unitplan.Unit, run unitplan.State, in unitplan.Inputs) error {
	loaded, known := a.Memory.State().Units[u.Name]
	if run.MayYetLoad(in) {
		run = unitplan.State{}
	}
	if u.Verb == unitplan.Restart {
		loaded.Made = loaded.MadeOf(known, in, a.booted())
	}
	return a.Memory.Loaded(u.Name, loaded.Outdated(run))
}

// askSystemd is all that systemd has to say before a decision.
func (a *Actions) askSystemd(ctx context.Context, u unitplan.Unit) (now unitplan.State, affected []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, busTimeout)
	defer cancel()
	if now, err = a.Systemd.State(ctx, u.Name); err != nil || !now.Exists {
		return now, nil, err
	}
	affected, err = a.Systemd.Affected(ctx, u)
	return now, affected, err
}

// Review says what the allowlist will not do although there is nothing to do yet. What cannot be
// asked now is asked before each action anyway. A job may be under way, if what asked for it was taken back.
func (a *Actions) Review(ctx context.Context) {
	for _, u := range a.Policy.Units {
		if s := a.units[u.Name]; s != nil && s.running {
			a.watchJob(u, s)
			continue
		}
		if _, affected, err := a.askSystemd(ctx, u); err == nil {
			if why := u.Refuse(affected); why != "" {
				a.refuseUnit(u, a.unit(u.Name), why)
			}
		}
	}
}

// refuseUnit keeps an action from being asked for that would act on units nobody allowed.
func (a *Actions) refuseUnit(u unitplan.Unit, s *unit, why string) {
	if s.reason != why {
		a.Trail.Record(audit.Action(audit.UnitActionRefused, u, nil, why))
	}
	*s = unit{state: report.Refused, reason: why, lastDone: s.lastDone}
}
