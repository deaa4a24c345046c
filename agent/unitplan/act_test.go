// SPDX-License-Identifier: Apache-2.0

package unitplan

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

func TestRefuseNamesTheLineThatAllows(t *testing.T) {
	unit := func(also ...string) Unit { return Unit{Name: "crio.service", Verb: TryRestart, AlsoAffects: also} }
	for sentence, c := range map[string]struct {
		unit     Unit
		affected []string
		want     string
	}{
		"nothing is dragged along": {unit(), nil, ""},
		"all that is dragged along is named": {unit("b.service", "kubelet.service"),
			[]string{"kubelet.service", "b.service"}, ""},
		"more may be named than is there now": {unit("kubelet.service"), nil, ""},
		"one is not named": {unit(), []string{"kubelet.service"},
			"try-restart crio.service would also act on kubelet.service; to allow that, add `units: {crio.service: " +
				"{alsoAffects: [kubelet.service]}}`"},
		"what is named already stays in place": {unit("z.service"), []string{"b.target", "kubelet.service", "z.service"},
			"try-restart crio.service would also act on b.target, kubelet.service; to allow that, add `units: {crio.service: " +
				"{alsoAffects: [b.target, kubelet.service, z.service]}}`"},
	} {
		if got := c.unit.Refuse(c.affected); got != c.want {
			t.Errorf("%s: got %q, want %q", sentence, got, c.want)
		}
	}
}

func TestNextStartKeepsClearOfTheLimit(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for sentence, c := range map[string]struct {
		burst    int
		interval time.Duration
		since    time.Duration // before now
		want     time.Duration // from now; 0 for at once
	}{
		"of five in ten seconds we take one in five":     {5, 10 * time.Second, 0, 5 * time.Second},
		"a start some time ago counts for what is left":  {5, 10 * time.Second, 3 * time.Second, 2 * time.Second},
		"a start long ago does not count":                {5, 10 * time.Second, time.Hour, 0},
		"one start in an interval is never near another": {1, time.Minute, 0, time.Minute + clockSlack},
		"without a limit nothing waits":                  {0, 0, 0, 0},
		"a limit over no time is none":                   {5, 0, 0, 0},
	} {
		s := State{Since: now.Add(-c.since), StartBurst: c.burst, StartInterval: c.interval}
		if got := max(0, s.NextStart(now).Sub(now)); got != c.want {
			t.Errorf("%s: waits %v, want %v", sentence, got, c.want)
		}
	}
	if next := (State{StartBurst: 5, StartInterval: time.Hour}).NextStart(now); !next.IsZero() {
		t.Errorf("a unit that never started waits until %v", next)
	}
	now = time.Now()
	s := State{Since: now.Round(0), StartBurst: 5, StartInterval: time.Hour}
	if next := s.NextStart(now); !strings.Contains(next.String(), " m=") {
		t.Errorf("whoever sets the clock back prolongs the wait until %v", next)
	}
}

func TestTheStartLimitIsKeptWhateverTheClockAndHoweverLongTheHostSlept(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for sentence, c := range map[string]struct {
		since, ago time.Duration // by the clock then, and by an uptime that leaves out sleep
		want       time.Duration
	}{
		"two seconds after the start":                     {-2 * time.Second, 2 * time.Second, 3 * time.Second},
		"the host slept for an hour before the start":     {-2 * time.Second, time.Hour, 3 * time.Second},
		"the clock was set back since":                    {time.Hour, 2 * time.Second, 3 * time.Second},
		"the clock was set forward since":                 {-time.Hour, 2 * time.Second, 3 * time.Second},
		"a start to come is one just now, if that is all": {time.Hour, 0, 5 * time.Second},
		"long ago": {-time.Hour, time.Hour, 0},
	} {
		s := State{Since: now.Add(c.since), StartBurst: 5, StartInterval: 10 * time.Second}
		if c.ago > 0 {
			s.SinceUptime = 2*time.Hour - c.ago
		}
		if got := max(0, s.ForLimit(now, 2*time.Hour).NextStart(now).Sub(now)); got != c.want {
			t.Errorf("%s: waits %v, want %v", sentence, got, c.want)
		}
	}
}

func TestAStartIsNoLaterThanItCanHaveBeen(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for sentence, c := range map[string]struct {
		since, ago time.Duration // by the clock then, and by the uptime
		want       time.Duration // ago; -1 if nothing is known
	}{
		"a clock that nobody set tells the truth":  {-time.Minute, time.Minute, time.Minute},
		"one set back has the start in the future": {time.Hour, time.Minute, time.Minute},
		"or too late": {-time.Second, time.Minute, time.Minute},
		"one set forward has it too early, and may":        {-time.Hour, time.Minute, time.Hour},
		"without the uptime the clock has to do":           {-time.Minute, 0, time.Minute},
		"without the uptime a start to come tells nothing": {time.Minute, 0, -1},
	} {
		s := State{Since: now.Add(c.since)}
		if c.ago > 0 {
			s.SinceUptime = time.Hour - c.ago
		}
		got := s.AsOf(now, time.Hour).Since
		if want := now.Add(-c.want); c.want < 0 && !got.IsZero() || c.want >= 0 && !got.Equal(want) {
			t.Errorf("%s: started %v ago, want %v", sentence, now.Sub(got), c.want)
		}
	}
}

func TestOneshotsComeFirstAndMakeWhatUnitsOfTheSameFieldLoad(t *testing.T) {
	p := Policy{
		Policy: plan.Policy{Files: []plan.FileSpec{{Field: plan.RootCAData, OnChange: []string{"a.service", "make.service"}},
			{Field: plan.AdditionalTrustBundle, OnChange: []string{"b.service"}}}},
		Units: []Unit{{Name: "a.service", Verb: Reload}, {Name: "b.service", Verb: TryRestart},
			{Name: "make.service", Verb: Restart}},
	}
	var order []string
	for _, u := range p.InOrder() {
		order = append(order, u.Name)
	}
	if want := []string{"make.service", "a.service", "b.service"}; !slices.Equal(order, want) {
		t.Errorf("in the order %q, want %q", order, want)
	}
	for unit, want := range map[string][]string{"a.service": {"make.service"}, "b.service": nil, "make.service": nil} {
		if got := p.Prerequisites(unit); !slices.Equal(got, want) {
			t.Errorf("%s waits for %q, want %q", unit, got, want)
		}
	}
}
