// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/agenttest"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/state"
	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// wantIdle lets d pass and fails if the loop then turns without waiting for anything.
func (h *host) wantIdle(d time.Duration) {
	h.t.Helper()
	h.lapse(d)
	h.clock.AwaitAsked(h.asked)
	before := h.clock.AtOnce()
	h.turn()
	h.clock.AwaitAsked(h.asked)
	if h.clock.AtOnce() != before {
		h.t.Errorf("the loop does not rest; units %+v, trouble %q", h.last.Units, h.last.Error)
	}
	if strings.Contains(h.last.Error, "defect") {
		h.t.Errorf("it rests only since a reconcile that leaves undone what is due counts as failed: %q", h.last.Error)
	}
}

// forget takes the local override back, on a host that has never heard of an object.
func (h *host) forget() {
	h.t.Helper()
	h.overrides.Set(state.Overrides{}, nil)
	h.turn()
}

func TestTheLoopRestsWhenWhatWasAppliedIsTakenBackBeforeTheUnitActed(t *testing.T) {
	h := newHost(t)
	h.systemd.Start("reader.service")
	h.start()
	defer h.kill()
	if s := h.apply("1", kubelet(caA)); s.Units[0].State != "pending" {
		t.Fatalf("the unit is %+v", s.Units[0])
	}
	h.forget()
	h.wantIdle(time.Minute)
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
	h.wantIdle(2 * time.Minute)
	if u := h.unit("reader.service"); u.State != "overdue" {
		t.Errorf("the job goes on, and the unit is %+v", u)
	}
	close(end)
	h.awaitReconcile()
	h.wantIdle(time.Minute)
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
	h.wantIdle(2 * time.Hour)
}

func TestTheLoopRestsWhenAnActionFailedBeforeTheStartAndNothingIsKnownOfTheControllerConfig(t *testing.T) {
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
	h.wantIdle(time.Hour)
	h.publish(kubelet(caA))
	h.until("reader.service", "up to date", time.Second, 10*time.Second)
}

func TestWhatAOneshotMakesIsNotLoadedBeforeItsRunHasEnded(t *testing.T) {
	const oneshot = "maker.service"
	h := newHost(t)
	h.policy.Files[0].OnChange = []string{"reader.service", oneshot}
	h.policy.Units = []unitplan.Unit{{Name: "reader.service", Verb: unitplan.TryRestart},
		{Name: oneshot, Verb: unitplan.Restart}}
	h.systemd.Start("reader.service")
	h.systemd.Install(oneshot)
	begun, end, made := make(chan struct{}), make(chan struct{}), make(chan struct{})
	h.systemd.Hold = func(unit string) {
		if unit == oneshot {
			begun <- struct{}{}
			<-end
		}
	}
	store, has := "", ""
	h.systemd.Load = func(unit string) {
		if unit != oneshot {
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
	if u := h.unit(oneshot); u.State != "pending" || !strings.Contains(u.Reason, "has a job") {
		t.Errorf("while it runs the oneshot is %+v", u)
	}
	if u := h.unit("reader.service"); u.State != "pending" || u.Reason != "waits for "+oneshot {
		t.Errorf("while the oneshot runs the reader is %+v", u)
	}
	h.wantJobs()
	h.systemd.Hold = func(string) {}
	close(end)
	<-made
	h.until("reader.service", "up to date", time.Second, 2*time.Minute)
	if has != caA {
		t.Error("the reader has not loaded what the oneshot made")
	}
	h.wantJobs("restart "+oneshot, "try-restart reader.service")
}

// setClockBy sets the clock of the host, as whoever corrects it does.
func (h *host) setClockBy(d time.Duration) { h.clock.Set(h.clock.Now().Add(d)) }

func TestTheFirstFileIsLoadedAlthoughTheClockWasSetSinceTheUnitStarted(t *testing.T) {
	for _, by := range []time.Duration{-2 * time.Hour, -time.Second, time.Second, 2 * time.Hour} {
		for _, seen := range []bool{false, true} { // by the agent, before the clock was set
			h := newHost(t)
			h.policy.Units[0].Verb = unitplan.TryRestart
			has := ""
			h.systemd.Load = func(string) { has, _ = h.disk.Read(kubeletCA) }
			h.systemd.Start("reader.service")
			h.clock.Move(20 * time.Second)
			h.start()
			if seen {
				h.publish(registry("r", caB))
			}
			h.clock.AwaitAsked(h.asked)
			h.setClockBy(by)
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
	h.policy.Units[0].Verb = unitplan.TryRestart
	h.disk.Put(kubeletCA, caA)
	h.clock.Move(time.Hour)
	for range 3 {
		h.clock.Reboot()
		h.setClockBy(2 * time.Hour)
		h.clock.Move(20 * time.Second)
		h.systemd.Start("reader.service")
		h.clock.Move(20 * time.Second)
		h.setClockBy(-2 * time.Hour)
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
		h.policy.Units[0].Verb = unitplan.TryRestart
		near := "reader.service"
		h.systemd.Start(near)
		if drags {
			near = "kubelet.service"
			h.policy.Units[0].AlsoAffects = []string{near}
			h.systemd.Propagates["reader.service"] = []string{near}
		}
		h.start()
		h.publish(kubelet(caA))
		h.until("reader.service", "up to date", time.Second, time.Minute)
		h.elapse(time.Hour)
		h.systemd.Start(near)
		h.systemd.Limit(near, 5, 10*time.Second)
		h.publish(kubelet(caB))
		h.elapse(2 * time.Second)
		if u := h.unit("reader.service"); !strings.Contains(u.Reason, "start limit") {
			t.Errorf("right after a start: %+v", u)
		}
		h.clock.AwaitAsked(h.asked)
		h.setClockBy(-time.Hour)
		h.until("reader.service", "up to date", time.Second, 10*time.Second)
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
	h.setClockBy(-time.Hour)
	h.until("reader.service", "up to date", time.Second, 10*time.Second)
}

func TestNoUnitIsMadeToLoadAFileThatIsRefused(t *testing.T) {
	for _, verb := range []unitplan.Verb{unitplan.Reload, unitplan.TryRestart, unitplan.Restart} {
		for _, kind := range []plan.FileKind{plan.Unreadable, plan.Irregular} {
			h := newHost(t)
			h.policy.Units[0].Verb = verb
			root := h.rootField()
			h.systemd.Start("reader.service")
			h.start()
			h.publish(kubelet(caA), root)
			h.until("reader.service", "up to date", time.Second, 10*time.Second)
			h.elapse(time.Hour)
			did := h.systemd.Done()

			h.disk.Obstruct(kubeletCA, kind)
			h.turn()
			want := "waits for " + kubeletCA + ": it is " + string(kind)
			if u := h.unit("reader.service"); u.State != "unknown" || u.Reason != want {
				t.Errorf("%s, %s: the unit is %+v, want %q", verb, kind, u, want)
			}
			h.elapse(time.Hour)
			h.disk.Obstruct(kubeletCA, plan.Absent)
			h.until("reader.service", "up to date", time.Second, 10*time.Second)
			h.elapse(time.Hour)
			h.wantJobs(did...) // not a byte has changed

			h.disk.Obstruct(kubeletCA, kind)
			root.Data, root.Digest, root.Certs = kubelet(caA).Data, kubelet(caA).Digest, kubelet(caA).Certs
			h.publish(kubelet(caA), root)
			h.elapse(time.Hour)
			h.wantJobs(did...) // although another of its files has changed
			h.disk.Obstruct(kubeletCA, plan.Absent)
			h.until("reader.service", "up to date", time.Second, 10*time.Second)
			h.wantJobs(append(did, string(verb)+" reader.service")...)
			h.kill()
		}
	}
}

func TestNoUnitIsMadeToLoadWhatIsAboutToBeRepaired(t *testing.T) {
	for _, verb := range []unitplan.Verb{unitplan.Reload, unitplan.TryRestart} {
		h := newHost(t)
		h.policy.Units[0].Verb = verb
		var loaded []string
		h.systemd.Load = func(string) { data, _ := h.disk.Read(kubeletCA); loaded = append(loaded, data) }
		h.systemd.Start("reader.service")
		h.start()
		h.publish(kubelet(caA))
		h.until("reader.service", "up to date", time.Second, 10*time.Second)
		h.elapse(time.Hour)
		loaded = nil
		for range 20 { // somebody rewrites the file again and again
			h.disk.Put(kubeletCA, "scribble")
			h.turn()
			for range 10 {
				h.elapse(3 * time.Second)
			}
		}
		h.elapse(time.Hour)
		h.wantFile(kubeletCA, caA)
		if slices.Contains(loaded, "scribble") || verb == unitplan.TryRestart && len(loaded) > 0 {
			t.Errorf("%s: loaded %.20q", verb, loaded)
		}
		h.kill()
	}
}

func TestAUnitThatReadsWhatCannotBeWrittenSaysSo(t *testing.T) {
	h := newHost(t)
	root := h.rootField()
	h.systemd.Start("reader.service")
	h.start()
	defer h.kill()
	h.disk.Fail = func(op, path string) error {
		if op == "stage" && path == kubeletCA {
			return errDead
		}
		return nil
	}
	h.publish(kubelet(caA), root)
	h.elapse(time.Minute)
	if u := h.unit("reader.service"); u.State != "unknown" || !strings.HasPrefix(u.Reason, "waits for "+kubeletCA) {
		t.Errorf("the unit is %+v", u)
	}
	h.wantFile(rootCA, caB)
	h.wantJobs()
}

func TestUnitsActOnAHostWhoseMemoryCannotBeWritten(t *testing.T) {
	for _, verb := range []unitplan.Verb{unitplan.Reload, unitplan.TryRestart} {
		h := newHost(t)
		h.policy.Units[0].Verb = verb
		has := ""
		h.systemd.Load = func(string) { has, _ = h.disk.Read(kubeletCA) }
		h.systemd.Start("reader.service")
		h.start()
		h.publish(kubelet(caA))
		h.until("reader.service", "up to date", time.Second, 10*time.Second)
		h.elapse(time.Minute)

		h.dir.Fail = func(op, _ string) error {
			if op == "write" {
				return errors.New("no space left on device")
			}
			return nil
		}
		if h.publish(kubelet(caB)); h.unit("reader.service").State == "up to date" {
			t.Errorf("%s: it has not loaded what is on disk, and is %+v", verb, h.unit("reader.service"))
		}
		h.until("reader.service", "up to date", time.Second, 10*time.Second)
		if has != caB || h.last.Error == "" {
			t.Errorf("%s: has loaded the new file: %v; trouble %q", verb, has == caB, h.last.Error)
		}
		h.elapse(time.Hour)
		h.elapse(time.Hour)
		h.dir.Fail = noFailure
		h.elapse(time.Hour)
		if h.last.Error != "" {
			t.Errorf("%s: trouble %q", verb, h.last.Error)
		}
		h.crash()
		h.start()
		h.elapse(time.Hour)
		h.wantJobs(string(verb)+" reader.service", string(verb)+" reader.service") // once each, and that is remembered
		h.kill()
	}
}

func TestAnActionThatIsPendingWhileNothingCanBeRememberedSurvivesAKill(t *testing.T) {
	h := newHost(t)
	h.systemd.Start("reader.service")
	h.start()
	h.publish(kubelet(caA))
	h.until("reader.service", "up to date", time.Second, 10*time.Second)
	h.elapse(time.Minute)
	has := ""
	h.systemd.Load = func(string) { has, _ = h.disk.Read(kubeletCA) }
	h.systemd.Fail = func(op, _ string) error {
		if op == "reload" {
			return errDead
		}
		return nil
	}
	full := func(op, _ string) error {
		if op == "write" {
			return errors.New("no space left on device")
		}
		return nil
	}
	h.dir.Fail = full
	h.publish(kubelet(caB))
	h.elapse(3 * time.Second)
	h.crash()
	h.systemd.Fail, h.dir.Fail = noFailure, full
	h.start()
	defer h.kill()
	h.publish(kubelet(caB))
	h.until("reader.service", "up to date", time.Second, 10*time.Second)
	if has != caB {
		t.Error("the unit has not loaded what is on disk")
	}
}

func TestNothingIsCalledLoadedWhileTheFilesCannotBeSeen(t *testing.T) {
	h := newHost(t)
	h.systemd.Start("reader.service")
	h.start()
	defer h.kill()
	h.publish(kubelet(caA))
	h.until("reader.service", "up to date", time.Second, 10*time.Second)
	h.disk.Fail = func(op, _ string) error {
		if op == "observe" {
			return errDead
		}
		return nil
	}
	if h.turn(); h.unit("reader.service").State != "unknown" {
		t.Errorf("the unit is %+v", h.unit("reader.service"))
	}
	h.disk.Fail = noFailure
	h.until("reader.service", "up to date", time.Second, 10*time.Second)
	h.wantJobs("reload reader.service")
}

func TestWhatWasWrittenAndNotLookedAtSinceIsNotLoadedYet(t *testing.T) {
	h := newHost(t)
	h.times.BatchWindow = 0
	h.systemd.Start("reader.service")
	h.start()
	defer h.kill()
	h.publish(kubelet(caA))
	h.until("reader.service", "up to date", time.Second, time.Minute)
	blind := false
	h.disk.Fail = func(op, _ string) error {
		switch {
		case op == "rename": // the time of the file is not the time at which we asked for it
			h.clock.Move(time.Millisecond)
			blind = true
		case op == "observe" && blind:
			blind = false
			return errDead
		}
		return nil
	}
	h.publish(kubelet(caB))
	h.until("reader.service", "up to date", time.Second, time.Minute)
	h.wantJobs("reload reader.service", "reload reader.service")
}

func TestTheFirstFileOfAFieldIsLoadedAlthoughTheAgentDiedBeforeItRememberedIt(t *testing.T) {
	h := newHost(t)
	root := h.rootField()
	has := ""
	h.systemd.Load = func(string) { has, _ = h.disk.Read(rootCA) }
	h.systemd.Start("reader.service")
	h.start()
	h.publish(kubelet(caA))
	h.until("reader.service", "up to date", time.Second, 10*time.Second)
	h.disk.Fail = func(op, _ string) error {
		if op == "commit" { // done, and nobody lived to see it
			h.dir.Fail = func(string, string) error { return errDead }
		}
		return nil
	}
	h.publish(kubelet(caA), root)
	h.crash()
	h.disk.Fail = noFailure
	h.start() // without an API server
	defer h.kill()
	h.until("reader.service", "up to date", time.Second, 10*time.Second)
	h.wantFile(rootCA, caB)
	if has != caB {
		t.Error("the unit has not loaded what is on disk")
	}
}

func TestAFileThatOnlyTheOperatorAskedForIsLookedAtOnceThatIsTakenBack(t *testing.T) {
	h := newHost(t)
	root := h.rootField()
	has := ""
	h.systemd.Load = func(string) { has, _ = h.disk.Read(rootCA) }
	h.systemd.Start("reader.service")
	h.start()
	defer h.kill()
	h.publish(kubelet(caA))
	h.until("reader.service", "up to date", time.Second, 10*time.Second)
	h.apply("1", root)
	h.forget()
	h.until("reader.service", "up to date", time.Second, 10*time.Second)
	h.elapse(time.Minute)
	h.disk.Put(rootCA, caA)
	h.turn()
	h.until("reader.service", "up to date", time.Second, 10*time.Second)
	if has != caA {
		t.Error("the unit has not loaded what is on disk")
	}
}

// reading starts a unit with the verb, which notes what it reads, and a job of it that runs until the returned
// function is called.
func (h *host) reading(verb unitplan.Verb, early bool, others ...plan.Entry) (has *string, end func()) {
	h.t.Helper()
	h.policy.Units[0].Verb = verb
	has = new(string)
	h.systemd.Load = func(string) { *has, _ = h.disk.Read(kubeletCA) }
	h.systemd.Start("reader.service")
	h.start()
	h.publish(append(others, kubelet(caA))...)
	h.until("reader.service", "up to date", time.Second, 10*time.Second)
	h.elapse(time.Minute)
	begun, ends := make(chan struct{}), make(chan struct{})
	h.systemd.Hold, h.systemd.Early = func(string) { begun <- struct{}{}; <-ends }, early
	h.publish(append(others, kubelet(caB))...)
	h.lapse(3 * time.Second)
	<-begun
	return has, func() {
		h.systemd.Hold = func(string) {}
		close(ends)
		h.awaitReconcile()
	}
}

func TestAUnitWhoseFilesChangedWhileItsJobRanHasWhatIsOnDiskInTheEnd(t *testing.T) {
	c := string(testpki.NewCA("c"))
	for sentence, during := range map[string]func(h *host, end func()){
		"the ControllerConfig goes there and back": func(h *host, end func()) {
			h.publish(kubelet(c))
			h.clock.Move(time.Second)
			h.publish(kubelet(caB))
			end()
		},
		"the ControllerConfig goes there, and back as the job ends": func(h *host, end func()) {
			h.publish(kubelet(c))
			end()
			h.publish(kubelet(caB))
		},
		"somebody scribbles, which is repaired": func(h *host, end func()) {
			h.disk.Put(kubeletCA, "scribble")
			h.turn()
			end()
		},
		"somebody scribbles, which the end of the job brings to light": func(h *host, end func()) {
			h.disk.Put(kubeletCA, "scribble")
			end()
		},
		"somebody scribbles, and takes it back": func(h *host, end func()) {
			h.clock.Move(time.Second)
			h.disk.Put(kubeletCA, "scribble")
			h.clock.Move(time.Second)
			h.disk.Put(kubeletCA, caB)
			end()
		},
	} {
		for _, verb := range []unitplan.Verb{unitplan.Reload, unitplan.TryRestart} {
			for _, early := range []bool{false, true} {
				h := newHost(t)
				has, end := h.reading(verb, early)
				if strings.HasPrefix(sentence, "somebody") && !early {
					scribbled := h.systemd.Load
					h.systemd.Load = func(unit string) { // reads in the middle of it
						h.systemd.Load = scribbled
						*has = "scribble"
					}
				}
				during(h, end)
				h.until("reader.service", "up to date", time.Second, 20*time.Second)
				if h.wantFile(kubeletCA, caB); *has != caB {
					t.Errorf("%s, %s, early %v: the unit is called loaded and has %.20q", sentence, verb, early, *has)
				}
				jobs := len(h.systemd.Done())
				h.elapse(time.Hour)
				h.elapse(time.Hour)
				if n := len(h.systemd.Done()); n != jobs {
					t.Errorf("%s, %s, early %v: %d actions more", sentence, verb, early, n-jobs)
				}
				h.kill()
			}
		}
	}
}

func TestWhatARunIsBehindIsNotToldByAClockThatWasSetMeanwhile(t *testing.T) {
	h := newHost(t)
	has, end := h.reading(unitplan.TryRestart, true)
	h.clock.Move(time.Minute)
	h.clock.AwaitAsked(h.asked)
	h.setClockBy(-time.Hour)
	h.publish(kubelet(caA))
	h.clock.AwaitAsked(h.asked)
	h.setClockBy(time.Hour)
	end()
	defer h.kill()
	h.until("reader.service", "up to date", time.Second, 20*time.Second)
	if h.wantFile(kubeletCA, caA); *has != caA {
		t.Errorf("the unit is called loaded and has %.20q", *has)
	}
}

func TestAJobDuringWhichNothingChangedIsEnough(t *testing.T) {
	for _, verb := range []unitplan.Verb{unitplan.Reload, unitplan.TryRestart} {
		h := newHost(t)
		_, end := h.reading(verb, false)
		end()
		h.elapse(time.Hour)
		h.wantJobs(string(verb)+" reader.service", string(verb)+" reader.service")
		h.crash()
		h.start()
		h.elapse(time.Hour)
		h.wantJobs(string(verb)+" reader.service", string(verb)+" reader.service")
		h.kill()
	}
}

func TestAUnitThatSomebodyReloadedBeforeARepairIsReloadedAfterIt(t *testing.T) {
	for _, running := range []bool{true, false} {
		h := newHost(t)
		has := ""
		h.systemd.Load = func(string) { has, _ = h.disk.Read(kubeletCA) }
		h.systemd.Start("reader.service")
		h.start()
		h.publish(kubelet(caA))
		h.until("reader.service", "up to date", time.Second, 10*time.Second)
		h.elapse(time.Minute)
		if !running {
			h.kill()
		}
		h.disk.Put(kubeletCA, "scribble")
		has = "scribble" // systemctl reload leaves no trace
		if running {
			h.turn()
		} else {
			h.start()
		}
		h.wantFile(kubeletCA, caA)
		h.crash() // the repair is done, and that is all
		h.start()
		h.until("reader.service", "up to date", time.Second, 10*time.Second)
		if has != caA {
			t.Errorf("running %v: the unit is called loaded and has %.20q", running, has)
		}
		h.elapse(time.Hour)
		h.wantJobs("reload reader.service", "reload reader.service")
		h.kill()
	}
}

func TestARepairCausesNoRestart(t *testing.T) {
	h := newHost(t)
	h.policy.Units[0].Verb = unitplan.TryRestart
	h.systemd.Start("reader.service")
	h.start()
	defer h.kill()
	h.publish(kubelet(caA))
	h.until("reader.service", "up to date", time.Second, 10*time.Second)
	h.disk.Put(kubeletCA, "scribble")
	h.turn()
	h.wantFile(kubeletCA, caA)
	h.elapse(time.Hour)
	h.wantJobs("try-restart reader.service")
}

// TestFromAToBAndBack: a restart is seen by its invocation. Systemd keeps no trace of a reload, and somebody may have
// reloaded the unit with B. Found by the simulator.
func TestFromAToBAndBack(t *testing.T) {
	for _, verb := range []unitplan.Verb{unitplan.Reload, unitplan.TryRestart} {
		for _, rest := range []time.Duration{0, time.Second} {
			h := newHost(t)
			h.times.SettleDelay = rest
			h.policy.Units[0].Verb = verb
			has := ""
			h.systemd.Load = func(string) { has, _ = h.disk.Read(kubeletCA) }
			h.systemd.Start("reader.service")
			h.start()
			h.publish(kubelet(caA), registry("r", caA))
			h.until("reader.service", "up to date", time.Second, 10*time.Second)
			publish := func(ca string) {
				if rest == 0 {
					h.publish(kubelet(ca), registry("r", caA))
				} else {
					h.turnOnly(func() { h.offer(kubelet(ca), registry("r", caA)) })
				}
				h.wantFile(kubeletCA, ca)
			}
			publish(caB)
			want := []string{string(verb) + " reader.service"}
			if verb == unitplan.Reload {
				has = caB // systemctl reload leaves no trace
				want = append(want, want...)
			}
			publish(caA)
			h.elapse(time.Second)
			h.elapse(time.Hour)
			if has != caA {
				t.Errorf("%s, rest %v: the unit is called loaded and has %.20q", verb, rest, has)
			}
			h.wantJobs(want...)
			h.kill()
		}
	}
}

// idle lets d pass second by second, in each of which the watchdog turns the loop, and counts the reconciles.
func (h *host) idle(d time.Duration) (reconciles int) {
	for range d / time.Second {
		h.move(time.Second)
		for h.asked++; h.clock.Asked() < h.asked; runtime.Gosched() {
			select {
			case h.last = <-h.report.Statuses:
				reconciles++
			default:
			}
		}
	}
	return reconciles
}

func TestAJobThatDoesNotEndIsLookedAtLessAndLess(t *testing.T) {
	const oneshot = "maker.service"
	for _, who := range []string{oneshot, "somebody"} {
		h := newHost(t)
		h.times.Job, h.times.Watchdog = 10*time.Hour, 2*time.Second
		h.policy.Files[0].OnChange = []string{"reader.service", oneshot}
		h.policy.Units = []unitplan.Unit{{Name: "reader.service", Verb: unitplan.Reload},
			{Name: oneshot, Verb: unitplan.Restart}}
		h.systemd.Start("reader.service")
		h.systemd.Install(oneshot)
		begun, end, left := make(chan struct{}), make(chan struct{}), make(chan error)
		h.systemd.Hold = func(string) { begun <- struct{}{}; <-end }
		if who != oneshot {
			go func() {
				_, err := h.systemd.Act(context.Background(), unitplan.Unit{Name: "reader.service", Verb: unitplan.Reload})
				left <- err
			}()
			<-begun
			h.policy.Units = h.policy.Units[:1]
		}
		h.start()
		h.publish(kubelet(caA))
		h.wait(2 * time.Second)
		if who == oneshot {
			<-begun
		}
		reconciles := h.idle(time.Hour)
		if u := h.unit("reader.service"); u.State != "pending" || reconciles > 90 {
			t.Errorf("%d reconciles in an hour in which the job of %s does not end; the unit is %+v", reconciles, who, u)
		}
		h.systemd.Hold = func(string) {}
		close(end)
		if who == oneshot { // whose end is announced
			h.awaitReconcile()
			h.settled()
			h.until("reader.service", "up to date", time.Second, 3*time.Second)
		} else if err := <-left; err == nil {
			h.until("reader.service", "up to date", time.Second, 2*time.Minute)
		}
		h.kill()
	}
}

func TestABusThatStaysAwayIsTriedLessAndLess(t *testing.T) {
	h := newHost(t)
	h.times.Watchdog = 2 * time.Second
	h.systemd.Start("reader.service")
	tries := 0
	h.systemd.Fail = func(op, _ string) error {
		if op != "reload" {
			return nil
		}
		tries++
		return unreachableError{errors.New("no bus")}
	}
	h.start()
	defer h.kill()
	h.publish(kubelet(caA))
	for range 60 {
		h.idle(30 * time.Second)
		h.settled()
	}
	if tries < 30 || tries > 45 || h.recorded("unit-breaker") != 0 {
		t.Errorf("%d tries in half an hour, %q", tries, h.trail.Names())
	}
	h.systemd.Fail = noFailure
	h.until("reader.service", "up to date", time.Second, 70*time.Second)
}

func TestAUnitIsNotCalledLoadedWhenAFastPathFailed(t *testing.T) {
	h := newHost(t)
	h.systemd.Start("reader.service")
	h.start()
	defer h.kill()
	h.publish(kubelet(caA), registry("r", caA))
	h.until("reader.service", "up to date", time.Second, 10*time.Second)
	h.disk.Fail = func(op, _ string) error {
		if op == "commit" { // the files are there, and may not be tomorrow
			return errDead
		}
		return nil
	}
	h.publish(kubelet(caB), registry("r", caA))
	if h.wantFile(kubeletCA, caB); h.unit("reader.service").State == "up to date" {
		t.Errorf("the unit is %+v", h.unit("reader.service"))
	}
}

func TestAPendingActionStaysPendingHoweverTheClockIsSet(t *testing.T) {
	for _, crash := range []bool{false, true} {
		h := newHost(t)
		h.policy.Units[0].Verb = unitplan.TryRestart
		h.times.RandomizedDelay = 10 * time.Minute
		has := ""
		h.systemd.Load = func(string) { has, _ = h.disk.Read(kubeletCA) }
		h.systemd.Start("reader.service")
		h.clock.Move(time.Minute)
		h.start()
		h.clock.AwaitAsked(h.asked)
		h.setClockBy(-1000 * time.Hour)
		if s := h.publish(kubelet(caA)); s.Units[0].State != "pending" {
			t.Fatalf("the unit is %+v", s.Units[0])
		}
		if crash {
			h.crash()
			h.start()
		}
		h.clock.AwaitAsked(h.asked)
		h.setClockBy(1000 * time.Hour)
		h.turn()
		h.until("reader.service", "up to date", 10*time.Second, 11*time.Minute)
		if has != caA {
			t.Errorf("crash %v: the unit has read nothing and is %+v", crash, h.unit("reader.service"))
		}
		h.kill()
	}
}

func TestANewFieldIsPendingHoweverTheClockIsSet(t *testing.T) {
	h := newHost(t)
	root := h.rootField()
	h.policy.Files[2].Path = "/etc/kubernetes/{sha256}.crt"
	h.disk = agenttest.NewDisk(h.policy.Policy, h.clock)
	root.Name = root.Digest.String()
	has := false
	h.systemd.Load = func(string) { _, has = h.disk.Read("/etc/kubernetes/" + root.Name + ".crt") }
	h.systemd.Start("reader.service")
	h.clock.Move(time.Minute)
	h.start()
	defer h.kill()
	h.publish(kubelet(caA))
	h.until("reader.service", "up to date", time.Second, 10*time.Second)
	h.elapse(time.Minute)
	h.setClockBy(-1000 * time.Hour)
	h.publish(kubelet(caA), root)
	h.clock.AwaitAsked(h.asked)
	h.setClockBy(1000 * time.Hour)
	h.turn()
	h.until("reader.service", "up to date", time.Second, 10*time.Second)
	if !has {
		t.Errorf("the unit has not read the file of its new field, and is %+v", h.unit("reader.service"))
	}
}

// startWithOneshot starts a host with a oneshot that makes of the kubelet's CA what the reader loads.
func (h *host) startWithOneshot(verb unitplan.Verb) (has *string) {
	const oneshot = "maker.service"
	h.policy.Files[0].OnChange = []string{"reader.service", oneshot}
	h.policy.Units = []unitplan.Unit{{Name: "reader.service", Verb: verb}, {Name: oneshot, Verb: unitplan.Restart}}
	h.systemd.Install(oneshot)
	store := ""
	has = new(string)
	h.systemd.Load = func(unit string) {
		if unit == oneshot {
			store, _ = h.disk.Read(kubeletCA)
		} else {
			*has = store
		}
	}
	return has
}

func TestWhoStartsBetweenAChangeAndTheOneshotLoadsWhatTheOneshotMakes(t *testing.T) {
	for _, verb := range []unitplan.Verb{unitplan.Reload, unitplan.TryRestart} {
		for _, first := range []bool{false, true} { // boot
			h := newHost(t)
			has := h.startWithOneshot(verb)
			h.systemd.Start("reader.service")
			h.start()
			h.publish(kubelet(caA))
			h.until("reader.service", "up to date", time.Second, 10*time.Second)
			want := caA
			if !first {
				h.elapse(time.Minute)
				h.publish(kubelet(caB))
				want = caB
			} else {
				h.kill()
				h = newHost(t)
				has = h.startWithOneshot(verb)
				h.start()
				h.publish(kubelet(caA))
			}
			h.clock.Move(1500 * time.Millisecond)
			h.systemd.Start("reader.service") // after the change, and before the oneshot runs
			h.until("maker.service", "up to date", time.Second, 10*time.Second)
			h.until("reader.service", "up to date", time.Second, 10*time.Second)
			if *has != want {
				t.Errorf("%s, first boot %v: the reader has not what the oneshot made, and is %+v", verb, first,
					h.unit("reader.service"))
			}
			jobs := len(h.systemd.Done())
			h.crash()
			h.start()
			h.elapse(time.Hour)
			h.elapse(time.Hour)
			if n := len(h.systemd.Done()); n != jobs {
				t.Errorf("%s, first boot %v: %q", verb, first, h.systemd.Done())
			}
			h.kill()
		}
	}
}

func TestAOneshotThatMakesTheSameOnceMoreCausesNothing(t *testing.T) {
	h := newHost(t)
	h.startWithOneshot(unitplan.TryRestart)
	h.systemd.Start("reader.service")
	h.start()
	h.publish(kubelet(caA))
	h.until("reader.service", "up to date", time.Second, 10*time.Second)
	h.elapse(time.Minute)
	jobs := len(h.systemd.Done())
	h.systemd.Reboot()
	h.systemd.Start("reader.service")
	h.clock.Move(time.Minute)
	h.kill()
	h.start()
	defer h.kill()
	h.publish(kubelet(caA))
	h.elapse(time.Hour)
	h.elapse(time.Hour)
	if did := h.systemd.Done()[jobs:]; !slices.Equal(did, []string{"restart maker.service"}) {
		t.Errorf("after a reboot systemd did %q", did)
	}
}

// TestWhoDidNotWaitForAOneshotLoadsWhatItMakesInTheEnd: without memory, what an earlier boot wrote is taken for made.
// Who starts while the oneshot fails again and again has nothing of it all the same. Found by the simulator.
func TestWhoDidNotWaitForAOneshotLoadsWhatItMakesInTheEnd(t *testing.T) {
	for _, killed := range []string{"never", "when it had given up", "in the last try before"} {
		h := newHost(t)
		has := h.startWithOneshot(unitplan.TryRestart)
		h.disk.Put(kubeletCA, caA)
		h.clock.Move(time.Minute)
		h.clock.Reboot()
		h.clock.Move(time.Minute)
		h.systemd.Start("reader.service")
		h.systemd.Fail = func(op, _ string) error {
			if op == "restart" {
				return errDead
			}
			return nil
		}
		tries, last, ends := 0, make(chan struct{}), make(chan struct{})
		h.systemd.Hold = func(string) {
			if tries++; tries == 5 && killed == "in the last try before" {
				close(last)
				<-ends
			}
		}
		h.start()
		h.publish(kubelet(caA))
		if killed == "in the last try before" {
			h.await(last)
			h.crash()
			close(ends)
			h.systemd.AwaitIdle("maker.service")
			h.start()
			h.publish(kubelet(caA))
		}
		h.until("maker.service", "breaker open", time.Second, 2*time.Minute)
		h.until("reader.service", "up to date", time.Second, 10*time.Second)
		if killed == "when it had given up" {
			h.crash()
			h.start()
		}
		h.systemd.Fail = noFailure
		h.until("maker.service", "up to date", time.Minute, 2*time.Hour)
		h.until("reader.service", "up to date", time.Second, 10*time.Second)
		if *has != caA {
			t.Errorf("killed %s: the reader has not what the oneshot made; systemd did %q", killed, h.systemd.Done())
		}
		h.kill()
	}
}

// await lets time pass until something has happened.
func (h *host) await(happened <-chan struct{}) {
	for {
		select {
		case <-happened:
			return
		default:
			h.lapse(time.Second)
		}
	}
}

// TestAOneshotRunsOnceWhileWhoLoadsWhatItMakesCannotBeAskedAbout was found by the simulator.
func TestAOneshotRunsOnceWhileWhoLoadsWhatItMakesCannotBeAskedAbout(t *testing.T) {
	h := newHost(t)
	h.times.BatchWindow = 0 // it runs so near to the change that its time tells nothing
	h.startWithOneshot(unitplan.TryRestart)
	h.systemd.Start("reader.service")
	h.start()
	defer h.kill()
	h.publish(kubelet(caA))
	h.until("reader.service", "up to date", time.Second, 10*time.Second)
	jobs := len(h.systemd.Done())
	h.systemd.Fail = func(op, name string) error {
		if op == "state" && name == "reader.service" {
			return errDead
		}
		return nil
	}
	h.publish(kubelet(caB))
	h.settled()
	for range 20 {
		h.elapse(2 * time.Second)
	}
	h.systemd.Fail = noFailure
	h.until("reader.service", "up to date", time.Second, time.Minute)
	want := []string{"restart maker.service", "try-restart reader.service"}
	if did := h.systemd.Done()[jobs:]; !slices.Equal(did, want) {
		t.Errorf("systemd did %q", did)
	}
}

// TestAUnitThatSomebodyReloadedBeforeAChangeIsReloadedWhenItIsTakenBack: the change writes over what somebody else left
// there, so that the unit may have neither. Found by the simulator.
func TestAUnitThatSomebodyReloadedBeforeAChangeIsReloadedWhenItIsTakenBack(t *testing.T) {
	h := newHost(t)
	has := ""
	h.systemd.Load = func(string) { has, _ = h.disk.Read(kubeletCA) }
	h.systemd.Start("reader.service")
	h.start()
	defer h.kill()
	h.publish(kubelet(caA))
	h.until("reader.service", "up to date", time.Second, 10*time.Second)
	h.elapse(time.Minute)
	h.disk.Put(kubeletCA, "scribble")
	has = "scribble" // systemctl reload leaves no trace, and nothing tells the agent
	h.publish(kubelet(caB))
	h.publish(kubelet(caA))
	h.until("reader.service", "up to date", time.Second, 10*time.Second)
	if has != caA {
		t.Errorf("the unit is called loaded and has %.20q", has)
	}
}

// slowOneshot is a oneshot that reads the files of a field when it begins, and does not end before it is let.
const slowOneshot = "maker.service"

// installSlowOneshot installs it; what it reads load takes. end lets it end, and the agent see that.
func (h *host) installSlowOneshot(nth int, load func(string)) (begun <-chan struct{}, end func()) {
	h.policy.Files[nth].OnChange = []string{slowOneshot}
	h.policy.Units = []unitplan.Unit{{Name: slowOneshot, Verb: unitplan.Restart}}
	h.systemd.Install(slowOneshot)
	running, ending := make(chan struct{}), make(chan struct{})
	h.systemd.Hold, h.systemd.Early = func(string) { running <- struct{}{}; <-ending }, true
	h.systemd.Load = load
	h.clock.Move(time.Minute)
	return running, func() {
		h.systemd.Hold = func(string) {}
		close(ending)
		h.systemd.AwaitIdle(slowOneshot)
		for range 10 {
			h.elapse(10 * time.Second)
		}
	}
}

// TestAFileThatIsRemovedWhileAOneshotRunsIsRemovedFromWhatItMakes: a removal leaves no time behind by which somebody
// could tell that the run began before it. Found by the simulator.
func TestAFileThatIsRemovedWhileAOneshotRunsIsRemovedFromWhatItMakes(t *testing.T) {
	h := newHost(t)
	made := false
	begun, end := h.installSlowOneshot(1, func(string) { _, made = h.disk.Read(certsD + "r/ca.crt") })
	h.start()
	h.publish(registry("r", caA), registry("s", caA))
	h.lapse(2 * time.Second)
	<-begun // it has read both, and the agent is configured anew
	h.kill()
	h.start()
	defer h.kill()
	h.clock.Move(time.Minute)
	h.publish(registry("s", caA))
	h.wantFile(certsD+"r/ca.crt", "")
	end()
	if made {
		t.Errorf("what the oneshot made still holds the file that was removed; systemd did %q, and it is %+v",
			h.systemd.Done(), h.unit(slowOneshot))
	}
}

func TestAOneshotThatRunsSinceBeforeAChangeIsPendingHoweverTheClockIsSet(t *testing.T) {
	h := newHost(t)
	made := ""
	begun, end := h.installSlowOneshot(0, func(string) { made, _ = h.disk.Read(kubeletCA) })
	h.start()
	h.publish(kubelet(caA))
	h.lapse(2 * time.Second)
	<-begun // it has read the file, and the agent is configured anew
	h.kill()
	h.start()
	defer h.kill()
	h.elapse(time.Minute)
	h.setClockBy(-1000 * time.Hour)
	h.publish(kubelet(caB))
	h.clock.AwaitAsked(h.asked)
	h.setClockBy(1000 * time.Hour)
	end()
	if made != caB {
		t.Errorf("the oneshot has not run with what is on disk; systemd did %q, and it is %+v", h.systemd.Done(),
			h.unit(slowOneshot))
	}
}

func TestAFileThatTheAgentDiedOverIsItsOwn(t *testing.T) {
	h := newHost(t)
	h.policy.Files[1].OnChange = []string{"reader.service"}
	h.systemd.Start("reader.service")
	h.clock.Move(time.Minute)
	h.start()
	h.publish(registry("r", caA))
	h.disk.Fail = func(op, _ string) error {
		if op == "commit" { // it is done, and nobody hears of it
			h.dir.Fail = func(string, string) error { return errDead }
		}
		return nil
	}
	h.publish(registry("r", caA), registry("s", caA))
	h.kill()
	h.dir.Fail, h.disk.Fail = noFailure, noFailure
	h.start()
	defer h.kill()
	h.until("reader.service", "up to date", time.Second, 10*time.Second)
	jobs := h.systemd.Done()
	h.failing("stage")
	h.publish(registry("r", caA), registry("s", caB))
	h.publish(registry("r", caA), registry("s", caA))
	h.elapse(time.Minute)
	h.wantJobs(jobs...)
}

// TestAJobThatIsDoneIsKnownAlthoughAWriteFails: what a unit has loaded is known by what was done to its files, and a
// write that still fails did nothing to them. Found by the simulator.
func TestAJobThatIsDoneIsKnownAlthoughAWriteFails(t *testing.T) {
	h := newHost(t)
	h.policy.Files[1].OnChange = []string{"reader.service"}
	has, end := h.reading(unitplan.Reload, true, registry("s", caA))
	defer h.kill()
	h.failing("stage")
	h.publish(kubelet(caB), registry("r", caA), registry("s", caA))
	end()
	h.clock.Move(time.Second)
	h.disk.Put(kubeletCA, caB) // the same, in a file of its own
	h.publish(kubelet(caB), registry("s", caA))
	jobs := len(h.systemd.Done())
	h.disk.Fail = noFailure
	h.until("reader.service", "up to date", time.Second, time.Minute)
	if n := len(h.systemd.Done()); n != jobs || *has != caB {
		t.Errorf("the unit has %.20q; systemd did %q, and %d of it before the write", *has, h.systemd.Done(), jobs)
	}
}

// TestAFileThatCouldNotBeWrittenIsNobodyElses: nobody reloaded the unit with what stood there, since nobody else
// touched it. Found by the simulator.
func TestAFileThatCouldNotBeWrittenIsNobodyElses(t *testing.T) {
	for _, operation := range []string{"stage", "rename"} {
		for _, again := range []bool{false, true} { // the agent was started anew, and no pass has succeeded since
			h := newHost(t)
			h.policy.Files[1].OnChange = []string{"reader.service"}
			h.systemd.Start("reader.service")
			h.start()
			h.publish(kubelet(caA), registry("s", caA))
			h.until("reader.service", "up to date", time.Second, 10*time.Second)
			h.elapse(time.Minute)
			jobs := len(h.systemd.Done())
			h.failing(operation)
			if again {
				h.kill()
				h.start()
			}
			h.publish(kubelet(caA), registry("s", caA), registry("r", caB))
			h.elapse(time.Minute)
			h.publish(kubelet(caA), registry("s", caA))
			h.disk.Fail = noFailure
			h.elapse(time.Minute)
			h.until("reader.service", "up to date", time.Second, time.Minute)
			if did := h.systemd.Done()[jobs:]; len(did) > 0 {
				t.Errorf("when it fails to %s, started anew %v: systemd did %q", operation, again, did)
			}
			h.kill()
		}
	}
}

// TestWhatAWriteFailedToPutThereIsSomebodyElsesLater: once the files were in order again without it, whoever puts it
// there may have had a unit reloaded with it.
func TestWhatAWriteFailedToPutThereIsSomebodyElsesLater(t *testing.T) {
	h := newHost(t)
	has := ""
	h.systemd.Load = func(string) { has, _ = h.disk.Read(kubeletCA) }
	h.systemd.Start("reader.service")
	h.start()
	defer h.kill()
	h.publish(kubelet(caA))
	h.until("reader.service", "up to date", time.Second, 10*time.Second)
	h.elapse(time.Minute)
	h.failing("stage")
	h.publish(kubelet(caB))
	h.elapse(time.Minute)
	h.disk.Fail = noFailure
	h.publish(kubelet(caA))
	h.elapse(time.Minute)
	h.disk.Put(kubeletCA, caB)
	has = caB // systemctl reload leaves no trace
	h.turn()
	h.wantFile(kubeletCA, caA)
	h.until("reader.service", "up to date", time.Second, time.Minute)
	if has != caA {
		t.Errorf("the unit is called loaded and has %.20q; systemd did %q", has, h.systemd.Done())
	}
}
