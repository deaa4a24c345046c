// SPDX-License-Identifier: Apache-2.0

package desired

import (
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/agent/state"
)

func TestTheClockIsTrustedOnlyBesideTheServersTime(t *testing.T) {
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	heard := ServerTime{Date: noon, Seen: noon}
	for sentence, c := range map[string]struct {
		wall  time.Time
		said  ServerTime
		built time.Time
		want  bool
	}{
		"a clock that agrees with the API server is believed": {noon, heard, noon.Add(-time.Hour), true},
		"so it is four minutes off": {noon.Add(4 * time.Minute),
			ServerTime{noon, noon.Add(4 * time.Minute)}, time.Time{}, true},
		"nobody has told the time in this boot": {noon, ServerTime{}, time.Time{}, false},
		"the clock was hours slow when it was told": {noon.Add(-3 * time.Hour),
			ServerTime{noon, noon.Add(-3 * time.Hour)}, time.Time{}, false},
		"the clock was hours fast when it was told": {noon.Add(3 * time.Hour),
			ServerTime{noon, noon.Add(3 * time.Hour)}, time.Time{}, false},
		"it is before a certificate began that is in use": {noon, heard, noon.Add(time.Minute), false},
		"a clock that was set back to before the build is doubted": {noon.Add(-time.Hour),
			ServerTime{noon.Add(-time.Hour), noon.Add(-time.Hour)}, noon.Add(-time.Minute), false},
	} {
		if got := c.said.trusted(c.wall, c.built); got.IsZero() == c.want {
			t.Errorf("%s: got %v", sentence, got)
		}
	}
	if now := time.Now(); (ServerTime{Date: now, Seen: now}).trusted(now.Round(0).Add(time.Hour), time.Time{}).IsZero() {
		t.Error("an hour that passed by both clocks is doubted")
	}
}

// host is a clock that runs as that of this machine, in a boot of its own.
type host struct{ up time.Duration }

func (host) Now() time.Time                         { return time.Now() }
func (host) After(d time.Duration) <-chan time.Time { return time.After(d) }
func (h host) Uptime() time.Duration                { return h.up }
func (host) Boot() string                           { return "boot" }

// TestTheEndOfAPauseIsNotMovedByAClockThatIsSet: Until is of the wall clock, and what has no monotonic reading is
// compared by that.
func TestTheEndOfAPauseIsNotMovedByAClockThatIsSet(t *testing.T) {
	now := time.Now()
	for sentence, p := range map[string]state.Pause{
		"as it began":     {At: now, Until: now.Add(time.Hour), Boot: "boot", Uptime: time.Minute},
		"of another boot": {At: now, Until: now.Add(time.Hour), Boot: "before"},
		"when the clock was a day fast": {At: now.Add(24 * time.Hour), Until: now.Add(25 * time.Hour), Boot: "boot",
			Uptime: time.Minute},
	} {
		p.At, p.Until = p.At.Round(0), p.Until.Round(0) // as they are read from the disk
		s := &State{Options: Options{Clock: host{up: time.Minute}}}
		if s.pausedBy(&p) == "" {
			t.Errorf("%s: no pause", sentence)
		}
		at := s.Timer().At
		if at == at.Round(0) {
			t.Errorf("%s: its end %v has no monotonic reading", sentence, at)
		}
		if left := at.Sub(now); left < 59*time.Minute || left > 61*time.Minute {
			t.Errorf("%s: it ends in %v, want an hour", sentence, left)
		}
	}
}

func TestAReadingSaysWhichSourceIsBehind(t *testing.T) {
	for sentence, c := range map[string]struct {
		reading Reading
		want    behind
	}{
		"both are followed": {Reading{State: report.Following, ConfigMap: &report.Source{State: report.Following}},
			behind{}},
		"nothing takes from the second": {Reading{State: report.Following}, behind{}},
		"the first is away":             {Reading{State: "reconnecting"}, behind{controllerConfig: true}},
		"the second is forbidden": {Reading{State: report.Following, ConfigMap: &report.Source{State: "forbidden"}},
			behind{configMap: true}},
	} {
		if got := c.reading.behind(); got != c.want {
			t.Errorf("%s: %+v, want %+v", sentence, got, c.want)
		}
	}
}
