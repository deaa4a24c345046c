// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/clock"
)

// fixedClock is a clock that stands.
type fixedClock struct{ now time.Time }

func (s *fixedClock) Now() time.Time                     { return s.now }
func (*fixedClock) After(time.Duration) <-chan time.Time { return nil }
func (*fixedClock) Uptime() time.Duration                { return time.Minute }
func (*fixedClock) Boot() string                         { return "boot" }

// From outside this cannot be brought about.
func TestWhatAReconcileOverlooksIsAnErrorAndNoBusyLoop(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	s := &schedule{clock: &fixedClock{now}, backoff: clock.Backoff{Min: time.Second, Max: time.Minute},
		times: Times{Resync: time.Hour}, began: now, resync: now.Add(time.Hour)}
	due := []clock.Timer{{What: "the end of a pause", At: now}}
	if news := s.end(nil, due); !strings.Contains(news, "the end of a pause") || news != s.lastError {
		t.Errorf("what is due after a reconcile is the news %q, and the trouble %q", news, s.lastError)
	}
	if news := s.end(nil, due); news != "" {
		t.Errorf("the same again is the news %q", news)
	}
	if wait := s.next(due).Sub(now); wait < 900*time.Millisecond {
		t.Errorf("the next reconcile comes %v later", wait)
	}
	if news := s.end(nil, []clock.Timer{{At: now.Add(time.Millisecond)}}); news != "" || s.lastError != "" {
		t.Errorf("what comes up later gives the trouble %q", s.lastError)
	}
}
