// SPDX-License-Identifier: Apache-2.0

package reloader

import (
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
)

var now = time.Date(2026, 11, 22, 5, 0, 0, 0, time.UTC)

// running is a unit that nothing speaks against, started a while ago.
func running(name string, change func(*Seen)) Seen {
	s := Seen{Name: name, State: unitplan.State{Exists: true, Active: true}, Starts: []unitplan.State{limited(time.Hour)}}
	if change != nil {
		change(&s)
	}
	return s
}

// limited is a unit with systemd's default start limit that started so long ago.
func limited(ago time.Duration) unitplan.State {
	return unitplan.State{Exists: true, Since: now.Add(-ago), StartBurst: 5, StartInterval: 10 * time.Second}
}

func unlimited(ago time.Duration) unitplan.State {
	return unitplan.State{Exists: true, Since: now.Add(-ago)}
}

func TestAnActionIsDecidedByWhatTheAdministratorHasSeenAndWhatSystemdSays(t *testing.T) {
	const name = "a.service"
	reload, restart := unitplan.Unit{Name: name, Verb: unitplan.Reload},
		unitplan.Unit{Name: name, Verb: unitplan.TryRestart}
	tests := map[string]struct {
		unit   unitplan.Unit
		seen   Seen
		reason Reason // empty: allowed
		again  time.Duration
		detail string
	}{
		"a unit that runs is acted on": {unit: reload, seen: running(name, nil)},
		"a unit that does not run is asked about, too": {unit: reload, seen: running(name,
			func(s *Seen) { s.State.Active = false })},
		"a unit that is not there": {reload, Seen{}, NoSuchUnit, 0, "masked"},
		"an alias of another unit": {reload, running("b.service", nil), Refused, 0, "alias of b.service"},
		"units that nobody allowed": {restart, running(name, func(s *Seen) { s.Affected = []string{"kubelet.service"} }),
			Refused, 0, "add `units: {a.service: {alsoAffects: [kubelet.service]}}`"},
		"units that were allowed": {unit: unitplan.Unit{Name: name, Verb: unitplan.TryRestart,
			AlsoAffects: []string{"kubelet.service"}},
			seen: running(name, func(s *Seen) { s.Affected = []string{"kubelet.service"} })},
		"a unit with a job of somebody else": {reload, running(name, func(s *Seen) { s.State.Busy = true }), Later,
			busyDelay, "has a job"},
		"a start near the limit": {restart, running(name,
			func(s *Seen) { s.Starts = []unitplan.State{limited(2 * time.Second)} }), Later, 3 * time.Second, "start limit"},
		"a start that is far enough from the last": {unit: restart, seen: running(name,
			func(s *Seen) { s.Starts = []unitplan.State{limited(5 * time.Second)} })},
		"a reload starts nothing": {unit: reload, seen: running(name,
			func(s *Seen) { s.Starts = []unitplan.State{limited(0)} })},
		"an affected unit near its limit": {restart, running(name,
			func(s *Seen) { s.Starts = append(s.Starts, limited(time.Second)) }), Later, 4 * time.Second, "start limit"},
		"a unit without a limit has ours": {restart, running(name,
			func(s *Seen) { s.Starts = []unitplan.State{unlimited(time.Second)} }), Later, 4 * time.Second, "start limit"},
		"a unit without a limit that was let alone": {unit: restart, seen: running(name,
			func(s *Seen) { s.Starts = []unitplan.State{unlimited(5 * time.Second)} })},
		"a unit that never started": {unit: restart, seen: running(name,
			func(s *Seen) { s.Starts = []unitplan.State{{Exists: true}} })},
	}
	for sentence, tt := range tests {
		t.Run(sentence, func(t *testing.T) {
			e := decide(tt.unit, tt.seen, rate{}, now)
			switch {
			case tt.reason == "" && e == nil:
			case tt.reason == "" || e == nil || e.Reason != tt.reason || !strings.Contains(e.Detail, tt.detail):
				t.Errorf("decided %v", e)
			case tt.again == 0 && !e.RetryAt.IsZero() || tt.again > 0 && !e.RetryAt.Equal(now.Add(tt.again)):
				t.Errorf("to be asked again at %v", e.RetryAt)
			case e.Unit != name || e.Verb != tt.unit.Verb:
				t.Errorf("about %s %s", e.Verb, e.Unit)
			}
		})
	}
}

func TestFiveActionsMayFollowOneAnotherAndThenOneASecond(t *testing.T) {
	u, s := unitplan.Unit{Name: "a.service", Verb: unitplan.Reload}, running("a.service", nil)
	var r rate
	at, done := now, 0
	for at.Before(now.Add(10 * time.Second)) {
		e := decide(u, s, r, at)
		switch {
		case e == nil:
			r = r.afterAction(at)
			done++
		case !e.RetryAt.After(at) || e.Reason != Later:
			t.Fatalf("at %v: %v, again at %v", at.Sub(now), e, e.RetryAt)
		default:
			at = e.RetryAt
		}
	}
	if done != burst+9 {
		t.Errorf("%d actions in ten seconds", done)
	}
	if r = (rate{}).afterAction(now).afterAction(now); r.next().After(now.Add(time.Minute)) {
		t.Errorf("after a minute the next is at %v", r.next())
	}
}

// The loop collects changes for two seconds, its default, and tries what fails after 1, 2, 4 and 8 seconds, less a
// tenth.
func TestTheAgentsOwnPaceNeverMeetsTheBound(t *testing.T) {
	u, s := unitplan.Unit{Name: "a.service", Verb: unitplan.Reload}, running("a.service", nil)
	var r rate
	at := now
	for range 50 {
		for _, pause := range []float64{2, .9, 1.8, 3.6, 7.2} {
			at = at.Add(time.Duration(pause * float64(time.Second)))
			if e := decide(u, s, r, at); e != nil {
				t.Fatalf("after %v: %v", at.Sub(now), e)
			}
			r = r.afterAction(at)
		}
	}
}

// Whoever acts as soon as he is let to never has a unit started five times within ten seconds, systemd's default limit.
func TestStartsNeverReachTheLimit(t *testing.T) {
	u := unitplan.Unit{Name: "a.service", Verb: unitplan.TryRestart}
	for _, limit := range []unitplan.State{limited(0), {StartBurst: 1, StartInterval: time.Minute},
		{StartBurst: 3, StartInterval: 20 * time.Second}, {}} {
		var r rate
		var starts []time.Time
		at := now
		for at.Before(now.Add(10 * time.Minute)) {
			s := running(u.Name, func(s *Seen) { s.Starts = []unitplan.State{limit} })
			e := decide(u, s, r, at)
			if e == nil {
				starts = append(starts, at)
				limit.Since, r = at, r.afterAction(at)
				continue
			}
			at = e.RetryAt
		}
		within, most := limit.StartInterval, limit.StartBurst
		if most == 0 {
			within, most = 10*time.Second, 5
		}
		for i := most; i < len(starts); i++ {
			if starts[i].Sub(starts[i-most]) < within {
				t.Errorf("limit %d in %v: starts at %v and %v", most, within, starts[i-most], starts[i])
			}
		}
		if len(starts) < 2 {
			t.Errorf("limit %d in %v: %d starts in ten minutes", most, within, len(starts))
		}
	}
}

func TestOnlyTheAllowlistAndWhatItNamesIsVisible(t *testing.T) {
	list := []unitplan.Unit{{Name: "a.service", Verb: unitplan.Reload},
		{Name: "b.service", Verb: unitplan.TryRestart, AlsoAffects: []string{"c.service"}}}
	for name, want := range map[string]bool{"a.service": true, "b.service": true, "c.service": true, "d.service": false,
		"": false} {
		if visible(list, name) != want {
			t.Errorf("%q is visible: %v", name, !want)
		}
	}
	if _, ok := find(list, "c.service"); ok {
		t.Error("an affected unit may be acted on by itself")
	}
}
