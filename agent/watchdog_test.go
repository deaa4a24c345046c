// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"testing"
	"time"
)

// turned waits until the loop, which a timer has woken for nothing but the watchdog, waits again.
func (h *host) turned() {
	h.asked++
	h.clock.AwaitAsked(h.asked)
}

func TestTheWatchdogHearsFromALoopThatTurnsAndFromNothingElse(t *testing.T) {
	h := newHost(t)
	h.times.Watchdog = 4 * time.Second
	entered, leave := make(chan struct{}), make(chan struct{})
	hang := false
	h.disk.Fail = func(string, string) error {
		if hang {
			hang = false
			entered <- struct{}{}
			<-leave
		}
		return nil
	}
	h.start()
	defer h.kill()
	h.publish(kubelet(caA))
	h.settled()
	h.clock.AwaitAsked(h.asked)
	for range 5 { // at twice the pace, with nothing else to do
		before := h.report.Answers()
		h.move(2 * time.Second)
		h.turned()
		if got := h.report.Answers(); got != before+1 {
			t.Fatalf("%d answers in half the time, want 1", got-before)
		}
	}
	hang = true
	h.watcher <- struct{}{}
	<-entered
	before := h.report.Answers()
	h.clock.Move(time.Minute)
	if got := h.report.Answers(); got != before {
		t.Errorf("%d answers from a loop that hangs", got-before)
	}
	close(leave)
	h.awaitReconcile()
	h.turned()
	if got := h.report.Answers(); got == before {
		t.Error("no answer from a loop that turns again")
	}
}
