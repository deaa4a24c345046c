// SPDX-License-Identifier: Apache-2.0

package reloader

import (
	"fmt"
	"slices"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
)

const (
	// burst actions on one unit may follow one another at once, and after them one in each interval. The
	// agent collects changes for two seconds and tries what fails after 1, 2, 4 and 8, so it meets this bound
	// only if it is configured to collect for less than a second.
	burst    = 5
	interval = time.Second
	// minStartInterval is between two starts of a unit that has no start limit of its own: the pace that
	// systemd's default limit, five in ten seconds, leaves to us.
	minStartInterval = 5 * time.Second
	// busyDelay is when to ask again for a unit that has a job.
	busyDelay = time.Second
)

// Seen is what systemd says of one unit of the allowlist.
type Seen struct {
	// Verb is the configured one.
	Verb unitplan.Verb `json:"verb"`
	// Name is systemd's own for the unit; another one than was asked for if that is an alias. It is empty
	// if there is no such unit.
	Name  string         `json:"name,omitempty"`
	State unitplan.State `json:"state"`
	// Affected are the other units that systemd would act on with the verb, sorted.
	Affected []string `json:"affected,omitempty"`
	// Program is what a oneshot runs, by its path; empty for any other unit.
	Program string `json:"program,omitempty"`
	// Starts are the states of the unit and of the affected ones, for their start limits: Since is the last
	// start by the monotonic clock, which systemd counts by, given in the time of now.
	Starts []unitplan.State `json:"-"`
}

// find is the unit's entry on the allowlist.
func find(list []unitplan.Unit, name string) (unitplan.Unit, bool) {
	i := slices.IndexFunc(list, func(u unitplan.Unit) bool { return u.Name == name })
	if i < 0 {
		return unitplan.Unit{}, false
	}
	return list[i], true
}

// visible tells whether the state of a unit may be asked for: of those on the allowlist, and of those that
// the administrator has accepted as affected.
func visible(list []unitplan.Unit, name string) bool {
	return slices.ContainsFunc(list, func(u unitplan.Unit) bool {
		return u.Name == name || slices.Contains(u.AlsoAffects, name)
	})
}

// decide says why the action may not be asked for at this time, or nil. It is pure.
func decide(u unitplan.Unit, s Seen, r rate, now time.Time) *Error {
	no := func(reason Reason, format string, args ...any) *Error {
		return &Error{Unit: u.Name, Verb: u.Verb, Reason: reason, Detail: fmt.Sprintf(format, args...)}
	}
	later := func(t time.Time, format string, args ...any) *Error {
		e := no(Later, format, args...)
		e.RetryAt = t
		e.Detail += "; not before " + t.UTC().Format(time.TimeOnly)
		return e
	}
	switch {
	case !s.State.Exists:
		return no(NoSuchUnit, "there is no unit of this name, or it is masked")
	case s.Name != u.Name:
		// Else a link in a unit directory could lead from an allowed name to another unit.
		return no(Refused, "it is an alias of %s; the allowlist has to name that", s.Name)
	}
	if why := u.Refuse(s.Affected); why != "" {
		return no(Refused, "%s", why)
	}
	if s.State.Busy {
		// It may be one that we have lost sight of.
		return later(now.Add(busyDelay), "systemd has a job for it")
	}
	if next := nextStart(u, s, now); next.After(now) {
		return later(next, "its start limit is near")
	}
	if next := r.next(); next.After(now) {
		return later(next, "it was acted on %d times in quick succession", burst)
	}
	return nil
}

// nextStart is when the action may start the unit and those that start with it, so that none of them can
// reach its start limit by us; zero for a verb that starts nothing.
func nextStart(u unitplan.Unit, s Seen, now time.Time) (latest time.Time) {
	if !u.Verb.Starts() {
		return latest
	}
	for _, start := range s.Starts {
		next := start.NextStart(now)
		if next.IsZero() && !start.Since.IsZero() {
			next = start.Since.Add(minStartInterval)
		}
		if next.After(latest) {
			latest = next
		}
	}
	return latest
}

// rate is how often a unit was acted on lately: the time at which it would have recovered from all of it.
// The zero value is a unit that was left alone. (The generic cell rate algorithm of ITU-T I.371.)
type rate struct{ free time.Time }

// next is when one more action is within the bound; it may have passed.
func (r rate) next() time.Time { return r.free.Add(-(burst - 1) * interval) }

// afterAction is the rate after one more action.
func (r rate) afterAction(now time.Time) rate {
	if r.free.Before(now) {
		r.free = now
	}
	return rate{r.free.Add(interval)}
}
