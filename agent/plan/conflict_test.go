// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"
	"time"
)

// quarrel lets somebody change a file every so often for a while, looks after each change and again
// when there is an answer to give, and returns when the file was repaired.
func quarrel(r FileSpec, every, forSoLong time.Duration) (repairs []time.Duration, q Quarrel) {
	for now := time.Duration(0); now <= forSoLong; now += time.Second {
		if now%every == 0 {
			q = q.Changed(now)
		}
		if q.Open && now >= q.Answer(r) {
			repairs = append(repairs, now)
			q = q.Repaired(now)
		}
	}
	return repairs, q
}

func TestOrdinaryDriftIsAnsweredAtOnce(t *testing.T) {
	repairs, q := quarrel(FileSpec{}, 5*time.Minute, time.Hour)
	if len(repairs) != 13 || q.Conflict() {
		t.Errorf("of 13 changes in an hour %d were repaired, conflict %v", len(repairs), q.Conflict())
	}
	for i, r := range repairs {
		if want := time.Duration(i) * 5 * time.Minute; r != want {
			t.Errorf("the change at %v was repaired at %v", want, r)
		}
	}
}

func TestWhoKeepsChangingAFileIsAnsweredOnceAMinute(t *testing.T) {
	repairs, q := quarrel(FileSpec{}, 5*time.Second, 30*time.Minute)
	if !q.Conflict() || len(repairs) > 33 || len(repairs) < 30 {
		t.Errorf("%d repairs in 30 minutes, conflict %v", len(repairs), q.Conflict())
	}
	for i := range repairs {
		if i < QuarrelAfter {
			if want := time.Duration(i) * 5 * time.Second; repairs[i] != want {
				t.Errorf("repair %d was at %v, want %v", i+1, repairs[i], want)
			}
		} else if gap := repairs[i] - repairs[i-1]; gap < QuarrelPause || gap > QuarrelPause+5*time.Second {
			t.Errorf("repair %d came %v after the one before", i+1, gap)
		}
	}
	if len(q.Repairs) > 12 {
		t.Errorf("%d repairs are remembered", len(q.Repairs))
	}
}

func TestAConflictEndsWhenNobodyChangesTheFileAnyMore(t *testing.T) {
	_, q := quarrel(FileSpec{}, time.Second, 5*time.Minute)
	if q = q.Settled(12 * time.Minute); !q.Conflict() {
		t.Error("it ended before its time")
	}
	if q = q.Settled(15*time.Minute + time.Second); q.Conflict() || len(q.Repairs) > 0 {
		t.Errorf("it goes on with %v", q.Repairs)
	}
	if q = q.Changed(20 * time.Minute); q.Answer(FileSpec{}) != 20*time.Minute {
		t.Error("the next change is not answered at once")
	}
}

func TestAKnownWriterMayFinishFirst(t *testing.T) {
	beside := FileSpec{Field: ImageRegistryBundleData}.With([]Writer{MachineConfigDaemon})
	q := Quarrel{}.Changed(time.Minute)
	if at := q.Answer(beside); at <= time.Minute || at > time.Minute+10*time.Second {
		t.Errorf("answered at %v", at)
	}
	if q = q.Changed(time.Minute + time.Second); q.Found != time.Minute {
		t.Error("another look at the same change puts the answer off")
	}
	if q = q.Settled(time.Minute + time.Second); q.Open || q.Conflict() {
		t.Error("what they finished by themselves is still a change")
	}
}
