// SPDX-License-Identifier: Apache-2.0

package files

import (
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// contest lets somebody change a file every so often for a while, looks after each change and again
// when there is an answer to give, and returns when the file was repaired.
func contest(r plan.FileSpec, every, forSoLong time.Duration) (repairs []time.Duration, c conflict) {
	for now := time.Duration(0); now <= forSoLong; now += time.Second {
		if now%every == 0 {
			c = c.changed(now)
		}
		if c.open && now >= c.repairAt(r) {
			repairs = append(repairs, now)
			c = c.repaired(now)
		}
	}
	return repairs, c
}

func TestOrdinaryDriftIsAnsweredAtOnce(t *testing.T) {
	repairs, c := contest(plan.FileSpec{}, 5*time.Minute, time.Hour)
	if len(repairs) != 13 || c.lasts() {
		t.Errorf("of 13 changes in an hour %d were repaired, conflict %v", len(repairs), c.lasts())
	}
	for i, r := range repairs {
		if want := time.Duration(i) * 5 * time.Minute; r != want {
			t.Errorf("the change at %v was repaired at %v", want, r)
		}
	}
}

func TestWhoKeepsChangingAFileIsAnsweredOnceAMinute(t *testing.T) {
	repairs, c := contest(plan.FileSpec{}, 5*time.Second, 30*time.Minute)
	if !c.lasts() || len(repairs) > 33 || len(repairs) < 30 {
		t.Errorf("%d repairs in 30 minutes, conflict %v", len(repairs), c.lasts())
	}
	for i := range repairs {
		if i < conflictAfter {
			if want := time.Duration(i) * 5 * time.Second; repairs[i] != want {
				t.Errorf("repair %d was at %v, want %v", i+1, repairs[i], want)
			}
		} else if gap := repairs[i] - repairs[i-1]; gap < conflictPause || gap > conflictPause+5*time.Second {
			t.Errorf("repair %d came %v after the one before", i+1, gap)
		}
	}
	if len(c.repairs) > 12 {
		t.Errorf("%d repairs are remembered", len(c.repairs))
	}
}

func TestAConflictEndsWhenNobodyChangesTheFileAnyMore(t *testing.T) {
	_, c := contest(plan.FileSpec{}, time.Second, 5*time.Minute)
	if c = c.settled(12 * time.Minute); !c.lasts() {
		t.Error("it ended before its time")
	}
	if c = c.settled(15*time.Minute + time.Second); c.lasts() || len(c.repairs) > 0 {
		t.Errorf("it goes on with %v", c.repairs)
	}
	if c = c.changed(20 * time.Minute); c.repairAt(plan.FileSpec{}) != 20*time.Minute {
		t.Error("the next change is not answered at once")
	}
}

func TestAKnownWriterMayFinishFirst(t *testing.T) {
	beside := plan.FileSpec{Field: plan.ImageRegistryBundleData}.With([]plan.Writer{plan.MachineConfigDaemon})
	c := conflict{}.changed(time.Minute)
	if at := c.repairAt(beside); at <= time.Minute || at > time.Minute+10*time.Second {
		t.Errorf("answered at %v", at)
	}
	if c = c.changed(time.Minute + time.Second); c.found != time.Minute {
		t.Error("another look at the same change puts the answer off")
	}
	if c = c.settled(time.Minute + time.Second); c.open || c.lasts() {
		t.Error("what they finished by themselves is still a change")
	}
}
