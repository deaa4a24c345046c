// SPDX-License-Identifier: Apache-2.0

package wallclock_test

import (
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/wallclock"
)

func TestTheWallClockIsSetAndNoTimePasses(t *testing.T) {
	for _, by := range []time.Duration{0, time.Second, -10 * time.Hour, 9 * 365 * 24 * time.Hour} {
		before := time.Now()
		after := wallclock.Set(before, by)
		if after.Sub(before) != 0 || after.Before(before) || after.After(before) {
			t.Errorf("%v: %v have passed", by, after.Sub(before))
		}
		if got := after.Round(0).Sub(before.Round(0)); got != by {
			t.Errorf("set by %v, want %v", got, by)
		}
		if got := wallclock.Set(before, by).Add(time.Minute).Sub(before); got != time.Minute {
			t.Errorf("a minute later %v have passed", got)
		}
	}
	noon := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	if got := wallclock.Set(noon, time.Hour); !got.Equal(noon.Add(time.Hour)) {
		t.Errorf("a time from a file becomes %v", got)
	}
}

func TestAStampHasBothReadings(t *testing.T) {
	noon := time.Date(2026, 11, 22, 12, 0, 0, 1, time.UTC)
	a, b := wallclock.Stamp(noon, time.Hour), wallclock.Stamp(noon.Add(-24*time.Hour), time.Hour+time.Second)
	if got := b.Sub(a); got != time.Second {
		t.Errorf("%v have passed, want 1s", got)
	}
	if !a.Round(0).Equal(noon) || !b.Round(0).Equal(noon.Add(-24*time.Hour)) {
		t.Errorf("they read %v and %v", a, b)
	}
}
