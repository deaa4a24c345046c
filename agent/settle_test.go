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
