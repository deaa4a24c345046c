// SPDX-License-Identifier: Apache-2.0

package desired

import (
	"testing"
	"time"
)

func TestBelieve(t *testing.T) {
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	heard := Evidence{Date: noon, Seen: noon}
	for sentence, c := range map[string]struct {
		wall  time.Time
		said  Evidence
		floor time.Time
		want  bool
	}{
		"a clock that agrees with the API server is believed": {noon, heard, noon.Add(-time.Hour), true},
		"so it is four minutes off": {noon.Add(4 * time.Minute),
			Evidence{noon, noon.Add(4 * time.Minute)}, time.Time{}, true},
		"nobody has told the time in this boot": {noon, Evidence{}, time.Time{}, false},
		"the clock was hours slow when it was told": {noon.Add(-3 * time.Hour),
			Evidence{noon, noon.Add(-3 * time.Hour)}, time.Time{}, false},
		"the clock was hours fast when it was told": {noon.Add(3 * time.Hour),
			Evidence{noon, noon.Add(3 * time.Hour)}, time.Time{}, false},
		"it is before a certificate began that is in use": {noon, heard, noon.Add(time.Minute), false},
		"a clock that was set back below the floor is doubted": {noon.Add(-time.Hour),
			Evidence{noon.Add(-time.Hour), noon.Add(-time.Hour)}, noon.Add(-time.Minute), false},
	} {
		if got := c.said.believe(c.wall, c.floor); got.IsZero() == c.want {
			t.Errorf("%s: got %v", sentence, got)
		}
	}
	if now := time.Now(); (Evidence{Date: now, Seen: now}).believe(now.Round(0).Add(time.Hour), time.Time{}).IsZero() {
		t.Error("an hour that passed by both clocks is doubted")
	}
}
