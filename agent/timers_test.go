// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
)

// still is a clock that stands, and takes records.
type still struct {
	now     time.Time
	records []audit.Record
}

func (s *still) Now() time.Time                     { return s.now }
func (*still) After(time.Duration) <-chan time.Time { return nil }
func (*still) Uptime() time.Duration                { return time.Minute }
func (*still) Boot() string                         { return "boot" }
func (s *still) Record(r audit.Record)              { s.records = append(s.records, r) }

// From outside this cannot be brought about.
func TestWhatAPassOverlooksIsTroubleAndNoBusyLoop(t *testing.T) {
	s := &still{now: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)}
	l := (&Agent{Trail: s, Clock: s, Times: Times{Resync: time.Hour, RetryMin: time.Second, RetryMax: time.Minute}}).loop()
	l.turned, l.resync, l.resume = s.now, s.now.Add(time.Hour), s.now
	l.account(nil)
	if !strings.Contains(l.trouble, "the end of a pause") {
		t.Errorf("what is due after a pass gives the trouble %q", l.trouble)
	}
	if wait := l.next().Sub(s.now); wait < 900*time.Millisecond || len(s.records) != 1 {
		t.Errorf("the next pass comes %v later, with %d records", wait, len(s.records))
	}
	l.resume = s.now.Add(time.Millisecond)
	if l.account(nil); l.trouble != "" {
		t.Errorf("what comes up later gives the trouble %q", l.trouble)
	}
}
