// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// stuck takes nothing until it is let go.
type stuck struct {
	lines
	goOn chan struct{}
}

func (s *stuck) Write(b []byte) (int, error) {
	<-s.goOn
	return s.lines.Write(b)
}

func TestALogThatIsStuckHoldsNobodyUpTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stuck{goOn: make(chan struct{})}
		log := TimeoutLog("tester", s)
		begun := time.Now()
		if _, err := log.Write([]byte("1\n")); err == nil || time.Since(begun) != logTimeout {
			t.Errorf("%v after %v, want an error after %v", err, time.Since(begun), logTimeout)
		}
		if _, err := log.Write([]byte("2\n3\n")); err == nil || time.Since(begun) != logTimeout {
			t.Errorf("then %v after %v, want an error at once", err, time.Since(begun))
		}
		close(s.goOn)
		synctest.Wait()
		if _, err := log.Write([]byte("4\n")); err != nil {
			t.Error(err)
		}
		if want := "1\n<3>tester lost lines of this log: 2 went to nobody\n4\n"; s.String() != want {
			t.Errorf("the log holds %q, want %q", s.String(), want)
		}
	})
}

// slow takes one write in each tick.
type slow struct {
	lines
	tick <-chan time.Time
}

func (s *slow) Write(b []byte) (int, error) {
	<-s.tick
	return s.lines.Write(b)
}

func TestASlowLogLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tick := time.NewTicker(logTimeout / 10)
		defer tick.Stop()
		s := &slow{tick: tick.C}
		log := TimeoutLog("tester", s)
		var writers sync.WaitGroup
		for range 8 {
			writers.Go(func() {
				if _, err := log.Write([]byte("line\n")); err != nil {
					t.Error(err)
				}
			})
		}
		writers.Wait()
		if got := s.String(); got != strings.Repeat("line\n", 8) {
			t.Errorf("the log holds %q", got)
		}
	})
}

func TestARateLimitIsReachedAndRecovers(t *testing.T) {
	l := RateLimit{Burst: 3, Every: time.Second}
	now := time.Now()
	for _, step := range []struct {
		wait time.Duration
		n    int
		want bool
	}{{0, 2, true}, {0, 2, false}, {0, 1, true}, {0, 1, false}, {time.Second, 1, true}, {0, 1, false},
		{1500 * time.Millisecond, 1, true},
		{500 * time.Millisecond, 1, true}, {0, 1, false}, {time.Hour, 4, false}, {0, 3, true}, {0, 1, false}} {
		now = now.Add(step.wait)
		if got := l.allowAt(step.n, now); got != step.want {
			t.Errorf("after %v more, %d: %v, want %v", step.wait, step.n, got, step.want)
		}
	}
}

func TestAFloodOfRefusalsIsCountedAndNotRecordedOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(lines)
		r := &run{Server: &Server{Name: "tester", Log: log}, refusals: RateLimit{Burst: refusalBurst, Every: refusalEvery}}
		for range refusalBurst + 1000 {
			r.record("refused a request", Peer{}, "why")
		}
		if n := strings.Count(log.String(), "\n"); n != refusalBurst {
			t.Errorf("%d lines, want %d", n, refusalBurst)
		}
		r.refusals.at = r.refusals.at.Add(-refusalEvery) // the flood was an interval ago
		r.record("refused a request", Peer{}, "why")
		if want := fmt.Sprintf("reason=%q unrecorded=1000\n", "why"); !strings.HasSuffix(log.String(), want) {
			t.Errorf("the last line is %q, want the end %q", log.String()[len(log.String())-80:], want)
		}
	})
}
