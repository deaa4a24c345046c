// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/state"
)

// wantRest lets d pass and fails if the loop then turns without waiting for anything.
func (h *host) wantRest(d time.Duration) {
	h.t.Helper()
	h.lapse(d)
	h.clock.AwaitAsked(h.asked)
	before := h.clock.AtOnce()
	h.turn()
	h.clock.AwaitAsked(h.asked)
	if h.clock.AtOnce() != before {
		h.t.Errorf("the loop does not rest; units %+v, trouble %q", h.last.Units, h.last.Trouble)
	}
}

// forget takes the operator's word back, on a host that has never heard of an object.
func (h *host) forget() {
	h.t.Helper()
	h.word.Say(state.Word{}, nil)
	h.turn()
}

func TestTheLoopRestsWhenWhatWasAppliedIsTakenBackBeforeTheUnitActed(t *testing.T) {
	h := newHost(t)
	h.systemd.Start("reader.service")
	h.start()
	defer h.kill()
	if s := h.apply("1", kubelet(caA)); s.Units[0].State != "owed" {
		t.Fatalf("the unit is %+v", s.Units[0])
	}
	h.forget()
	h.wantRest(time.Minute)
}

func TestTheLoopRestsWhenWhatWasAppliedIsTakenBackWhileAJobRuns(t *testing.T) {
	h := newHost(t)
	h.systemd.Start("reader.service")
	begun, end := make(chan struct{}), make(chan struct{})
	h.systemd.Hold = func(string) { begun <- struct{}{}; <-end }
	h.start()
	defer h.kill()
	h.apply("1", kubelet(caA))
	h.wait(2 * time.Second)
	<-begun
	h.forget()
	h.wantRest(2 * time.Minute)
	if u := h.unit("reader.service"); u.State != "overdue" {
		t.Errorf("the job goes on, and the unit is %+v", u)
	}
	close(end)
	h.pass()
	h.wantRest(time.Minute)
}

func TestTheLoopRestsWhenAHoldOutlivesWhatWasApplied(t *testing.T) {
	h := newHost(t)
	h.policy.Trust.Hold = time.Hour
	h.disk.Put(kubeletCA, caA+caB)
	h.start()
	defer h.kill()
	if s := h.apply("1", kubelet(caA)); len(s.Held) != 1 {
		t.Fatalf("held: %+v", s.Held)
	}
	h.forget()
	h.wantRest(2 * time.Hour)
}

func TestTheLoopRestsWhenAnActionFailedBeforeTheStartAndNothingIsKnownOfTheObject(t *testing.T) {
	h := newHost(t)
	h.systemd.Start("reader.service")
	h.systemd.Fail = func(op, _ string) error {
		if op == "reload" {
			return errDead
		}
		return nil
	}
	h.start()
	h.publish(kubelet(caA))
	h.until("reader.service", "failed", time.Second, 10*time.Second)
	h.crash()
	h.dir.Fail = func(op, name string) error { // the last good bytes are lost
		if op == "read" && strings.HasPrefix(name, "blobs/") {
			return errDead
		}
		return nil
	}
	h.systemd.Fail = noFailure
	h.start()
	defer h.kill()
	h.wantRest(time.Hour)
	h.publish(kubelet(caA))
	h.until("reader.service", "loaded", time.Second, 10*time.Second)
}

func TestWhatAOneshotMakesIsNotLoadedBeforeItsRunHasEnded(t *testing.T) {
	const maker = "maker.service"
	h := newHost(t)
	h.policy.Rows[0].OnChange = []string{"reader.service", maker}
	h.policy.Units = []plan.Unit{{Name: "reader.service", Verb: plan.TryRestart}, {Name: maker, Verb: plan.Restart}}
	h.systemd.Start("reader.service")
	h.systemd.Install(maker)
	begun, end, made := make(chan struct{}), make(chan struct{}), make(chan struct{})
	h.systemd.Hold = func(unit string) {
		if unit == maker {
			begun <- struct{}{}
			<-end
		}
	}
	store, has := "", ""
	h.systemd.Load = func(unit string) {
		if unit != maker {
			has = store
		} else if store, _ = h.disk.Read(kubeletCA); store != "" {
			close(made)
		}
	}
	h.clock.Move(time.Minute)
	h.start()
	h.publish(kubelet(caA))
	h.lapse(2 * time.Second)
	h.lapse(2 * time.Second)
	<-begun // update-ca-trust runs, and the agent is configured anew
	h.kill()
	h.start()
	defer h.kill()
	for range 20 {
		h.lapse(time.Second)
	}
	if u := h.unit(maker); u.State != "owed" || !strings.Contains(u.Reason, "has a job") {
		t.Errorf("while it runs the oneshot is %+v", u)
	}
	if u := h.unit("reader.service"); u.State != "owed" || u.Reason != "waits for "+maker {
		t.Errorf("while the oneshot runs the reader is %+v", u)
	}
	h.wantJobs()
	h.systemd.Hold = func(string) {}
	close(end)
	<-made
	h.until("reader.service", "loaded", time.Second, 2*time.Minute)
	if has != caA {
		t.Error("the reader has not loaded what the oneshot made")
	}
	h.wantJobs("restart "+maker, "try-restart reader.service")
}

// step sets the clock of the host, as whoever corrects it does.
func (h *host) step(d time.Duration) { h.clock.Set(h.clock.Now().Add(d)) }

func TestTheFirstFileIsLoadedAlthoughTheClockWasSetSinceTheUnitStarted(t *testing.T) {
	for _, by := range []time.Duration{-2 * time.Hour, -time.Second, time.Second, 2 * time.Hour} {
		for _, seen := range []bool{false, true} { // by the agent, before the clock was set
			h := newHost(t)
			h.policy.Units[0].Verb = plan.TryRestart
			has := ""
			h.systemd.Load = func(string) { has, _ = h.disk.Read(kubeletCA) }
			h.systemd.Start("reader.service")
			h.clock.Move(20 * time.Second)
			h.start()
			if seen {
				h.publish(registry("r", caB))
			}
			h.clock.AwaitAsked(h.asked)
			h.step(by)
			h.publish(kubelet(caA), registry("r", caB))
			h.elapse(3 * time.Second)
			if has != caA {
				t.Errorf("the clock was set by %v, and the unit, which has read nothing, is %+v", by, h.unit("reader.service"))
			}
			h.kill()
			h.start()
			h.elapse(3 * time.Hour)
			h.wantJobs("try-restart reader.service")
			h.kill()
		}
	}
}

func TestAClockThatIsFastAtEachBootCausesNoRestart(t *testing.T) {
	h := newHost(t)
	h.policy.Units[0].Verb = plan.TryRestart
	h.disk.Put(kubeletCA, caA)
	h.clock.Move(time.Hour)
	for range 3 {
		h.clock.Reboot()
		h.step(2 * time.Hour)
		h.clock.Move(20 * time.Second)
		h.systemd.Start("reader.service")
		h.clock.Move(20 * time.Second)
		h.step(-2 * time.Hour)
		h.start()
		h.publish(kubelet(caA))
		for range 5 {
			h.elapse(time.Second)
		}
		h.kill()
	}
	h.wantJobs()
}

func TestAStartLimitIsWaitedForByAClockThatNobodySets(t *testing.T) {
	for _, drags := range []bool{false, true} {
		h := newHost(t)
		h.policy.Units[0].Verb = plan.TryRestart
		near := "reader.service"
		h.systemd.Start(near)
		if drags {
			near = "kubelet.service"
			h.policy.Units[0].AlsoAffects = []string{near}
			h.systemd.Propagates["reader.service"] = []string{near}
		}
		h.start()
		h.publish(kubelet(caA))
		h.until("reader.service", "loaded", time.Second, time.Minute)
		h.elapse(time.Hour)
		h.systemd.Start(near)
		h.systemd.Limit(near, 5, 10*time.Second)
		h.publish(kubelet(caB))
		h.elapse(2 * time.Second)
		if u := h.unit("reader.service"); !strings.Contains(u.Reason, "start limit") {
			t.Errorf("right after a start: %+v", u)
		}
		h.clock.AwaitAsked(h.asked)
		h.step(-time.Hour)
		h.until("reader.service", "loaded", time.Second, 10*time.Second)
		h.kill()
	}
}

func TestAPauseAfterAFailureIsWaitedForByAClockThatNobodySets(t *testing.T) {
	h := newHost(t)
	h.systemd.Start("reader.service")
	h.systemd.Fail = func(op, _ string) error {
		if op == "reload" {
			return errDead
		}
		return nil
	}
	h.start()
	h.publish(kubelet(caA))
	h.until("reader.service", "failed", time.Second, 10*time.Second)
	h.crash()
	h.systemd.Fail = noFailure
	h.start()
	defer h.kill()
	h.clock.AwaitAsked(h.asked)
	h.step(-time.Hour)
	h.until("reader.service", "loaded", time.Second, 10*time.Second)
}
