// SPDX-License-Identifier: Apache-2.0

package units

import (
	"maps"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/reloader"
	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
)

func TestTheVersionOfSystemdIsRead(t *testing.T) {
	b := newFakeBus(t, nil)
	b.says = map[string]string{managerIface: "252.39"}
	c := connected(t, b)
	if v, err := c.Version(within(t)); v != "252.39" || err != nil {
		t.Errorf("systemd is %q, %v", v, err)
	}
	b.stop()
	if _, err := c.Version(within(t)); reason(t, err) != reloader.Unreachable {
		t.Errorf("without a bus: %v", err)
	}
}

func TestTheProgramOfAOneshotIsRead(t *testing.T) {
	type command struct {
		Path   string
		Words  []string
		Ignore bool
	}
	b := newFakeBus(t, map[string]*fakeUnit{"once.service": {more: map[string]any{"ExecStart": []command{{"/bin/w",
		[]string{"w", "x"}, true}}}},
		"idle.service": {more: map[string]any{"ExecStart": []command{}}}})
	c := connected(t, b)
	for service, want := range map[string]string{"once.service": "/bin/w", "idle.service": "", "none.service": ""} {
		if s, err := c.Look(within(t), unitplan.Unit{Name: service, Verb: unitplan.Restart}); s.Program != want ||
			err != nil {
			t.Errorf("%s runs %q, %v", service, s.Program, err)
		}
	}
}

func TestAnAliasShowsTheNameOfItsUnit(t *testing.T) {
	b := newFakeBus(t, map[string]*fakeUnit{"a.service": {active: "active", alias: "other.service"}})
	if s, err := connected(t, b).Look(within(t), a); err != nil || s.Name != "other.service" {
		t.Errorf("have %+v, %v", s, err)
	}
}

// The last start of each unit comes in the time of now, whatever became of the clock since then.
func TestStartsAreToldByAClockThatNobodySets(t *testing.T) {
	start := func(ago time.Duration, more map[string]any) *fakeUnit {
		m := map[string]any{"InactiveExitTimestampMonotonic": uint64((monotonic() - ago).Microseconds()),
			"StartLimitBurst": uint32(5), "StartLimitIntervalUSec": uint64(10e6)}
		maps.Copy(m, more)
		// The wall clock was set back by hours after the start.
		return &fakeUnit{active: "active", invocation: 7, since: time.Now().Add(3 * time.Hour), more: m}
	}
	b := newFakeBus(t, map[string]*fakeUnit{"a.service": start(2*time.Second,
		map[string]any{"RequiredBy": []string{"b.service", "c.service"}}),
		"b.service": start(time.Second, nil), "c.service": {load: "masked"}})
	s, err := connected(t, b).Look(within(t), unitplan.Unit{Name: "a.service", Verb: unitplan.TryRestart})
	if err != nil || len(s.Starts) != 3 {
		t.Fatalf("have %+v, %v", s, err)
	}
	var ages []time.Duration
	for _, st := range s.Starts {
		if st.StartBurst == 5 {
			ages = append(ages, time.Since(st.Since).Round(time.Second))
		}
	}
	if len(ages) != 2 || ages[0] != 2*time.Second || ages[1] != time.Second {
		t.Errorf("the starts are %v ago", ages)
	}
	if s.State.Since.Before(time.Now().Add(time.Hour)) {
		t.Errorf("the start by the wall clock, with which times of files are compared: %v", s.State.Since)
	}
}
