// SPDX-License-Identifier: Apache-2.0

package unitplan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// InOrder is the allowlist as its actions are decided: our oneshots first, because what others load is
// what these make.
func (p Policy) InOrder() []Unit {
	units := slices.Clone(p.Units)
	oneshot := func(u Unit) bool { return u.Verb == Restart }
	others := slices.DeleteFunc(slices.Clone(units), oneshot)
	return append(slices.DeleteFunc(units, func(u Unit) bool { return !oneshot(u) }), others...)
}

// Prerequisites are the oneshots that a change of one of the unit's own fields runs, too. They have to end before the
// unit loads what they make.
func (p Policy) Prerequisites(unit string) (oneshots []string) {
	for _, u := range p.Units {
		together := func(r plan.FileSpec) bool {
			return slices.Contains(r.OnChange, unit) && slices.Contains(r.OnChange, u.Name)
		}
		if u.Verb == Restart && u.Name != unit && slices.ContainsFunc(p.Files, together) {
			oneshots = append(oneshots, u.Name)
		}
	}
	return oneshots
}

// Starts tells whether the action starts the unit, and so counts against its start limit.
func (v Verb) Starts() bool { return v == TryRestart || v == Restart }

// NextStart is when the unit may be started once more. systemd lets a unit fail that is started more
// often than its limit allows, and counts all starts: the administrator's and those after a crash too.
// So we leave it most of them, and space ours by twice the pace that the limit allows. Nothing has to be
// remembered for that: Since is the last start, whoever asked for it. See ForLimit for a clock that was set.
func (s State) NextStart(now time.Time) time.Time {
	if s.StartBurst <= 0 || s.StartInterval <= 0 || s.Since.IsZero() {
		return time.Time{}
	}
	wait := s.Since.Add(min(2*s.StartInterval/time.Duration(s.StartBurst), s.StartInterval) + clockSlack).Sub(now)
	return now.Add(wait) // with a monotonic reading, so that setting the clock does not prolong it
}

// ForLimit is s with the start that counts for its limit: what systemd says by the clock, unless that is yet to
// come, or earlier than it can have been.
func (s State) ForLimit(now time.Time, uptime time.Duration) State {
	if at := s.earliest(now, uptime); s.Since.After(now) || s.Since.Before(at) {
		s.Since = at
	}
	return s
}

// AsOf is s with a start that is no later than it can have been, given the clock and the uptime now. A clock
// that was set back since would have it in the future, and after changes that came later; one that was set
// forward has it in the past, where it is left: doubtful means earlier. Nothing follows from a start that is
// yet to come and of which systemd does not say how long ago it was.
func (s State) AsOf(now time.Time, uptime time.Duration) State {
	if at := s.earliest(now, uptime); s.SinceUptime > 0 && at.Before(s.Since) {
		s.Since = at
	}
	if s.Since.After(now) {
		s.Since = time.Time{}
	}
	return s
}

// earliest is when the run can have begun at the earliest, by the clock as it is set now: the uptime then leaves
// out what the host slept before. Without it, it is when it is said to have begun, and not yet to come.
func (s State) earliest(now time.Time, uptime time.Duration) time.Time {
	switch {
	case s.SinceUptime > 0:
		return now.Add(s.SinceUptime - uptime)
	case s.Since.After(now):
		return now
	}
	return s.Since
}

// Refuse says why the action may not be asked for, given the units that systemd would act on with it, or
// nothing: the administrator has not seen one of them. It ends with the line that allows it.
func (u Unit) Refuse(affected []string) string {
	also := slices.Clone(u.AlsoAffects)
	var unseen []string
	for _, name := range affected {
		if !slices.Contains(also, name) {
			unseen, also = append(unseen, name), append(also, name)
		}
	}
	if len(unseen) == 0 {
		return ""
	}
	slices.Sort(also)
	return fmt.Sprintf("%s %s would also act on %s; to allow that, add `units: {%s: {alsoAffects: [%s]}}`",
		u.Verb, u.Name, strings.Join(unseen, ", "), u.Name, strings.Join(also, ", "))
}
