// SPDX-License-Identifier: Apache-2.0

package approver

import (
	"testing"
	"time"
)

func TestARequestThatTakesTooLongFailsTheCheckOfHealth(t *testing.T) {
	now := time.Unix(1000, 0)
	p := progress{now: func() time.Time { return now }}
	want := func(sentence string, healthy bool) {
		t.Helper()
		if err := p.check(nil); (err == nil) != healthy {
			t.Errorf("%s: %v", sentence, err)
		}
	}
	want("at the start", true)
	p.begin()
	now = now.Add(stuck)
	want("work takes long", true)
	now = now.Add(time.Second)
	want("work hangs", false)
	p.end()
	now = now.Add(24 * time.Hour)
	want("nothing to do", true)
}
