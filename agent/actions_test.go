// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/agenttest"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// recorded counts the audit records of a kind.
func (h *host) recorded(kind string) (n int) {
	for _, name := range h.trail.Names() {
		if name == kind {
			n++
		}
	}
	return n
}

func (h *host) unit(name string) report.Unit {
	h.t.Helper()
	i := slices.IndexFunc(h.last.Units, func(u report.Unit) bool { return u.Name == name })
	if i < 0 {
		h.t.Fatalf("the status has no %s", name)
	}
	return h.last.Units[i]
}

// until lets time pass in steps until the unit is in that state, and tells how much it took.
func (h *host) until(name string, state report.UnitState, step, most time.Duration) (took time.Duration) {
	h.t.Helper()
	for h.unit(name).State != state {
		if took += step; took > most {
			h.t.Fatalf("after %v %s is %+v, want %s", most, name, h.unit(name), state)
		}
		h.elapse(step)
	}
	return took
}

func TestAJobThatTakesTooLongIsReportedOnceNeverRepeatedAndStillCounts(t *testing.T) {
	h := newHost(t)
	h.systemd.Start("reader.service")
	begun, end := make(chan struct{}), make(chan struct{})
	h.systemd.Hold = func(string) { begun <- struct{}{}; <-end }
	h.start()
	defer h.kill()
	h.publish(kubelet(caA))
	h.wait(2 * time.Second)
	<-begun
	h.wait(time.Minute) // Times.Job
	if u := h.unit("reader.service"); u.State != "overdue" || !strings.Contains(u.Reason, "1m0s") {
		t.Errorf("past its time: %+v", u)
	}
	h.publish(kubelet(caB)) // pending on top, and not asked for while the job runs
	for range 3 {
		h.clock.Move(10 * time.Minute)
		h.watcher <- struct{}{}
		h.awaitReconcile()
	}
	if n := h.recorded("unit-action-dispatched"); n != 1 || h.recorded("unit-action-overdue") != 1 ||
		h.recorded("unit-action-failed") != 0 {
		t.Errorf("dispatched %d times: %q", n, h.trail.Names())
	}
	h.systemd.Hold = func(string) {}
	close(end)
	if s := h.awaitReconcile(); s.Actions.Succeeded != 1 || s.Units[0].State != "pending" {
		t.Errorf("after the late end: %+v, %+v", s.Actions, s.Units[0])
	}
	h.until("reader.service", "up to date", 2*time.Second, 10*time.Second)
	h.wantJobs("reload reader.service", "reload reader.service")
}

func TestAJobOfADeadAgentIsWaitedForAndNotRepeatedBesideIt(t *testing.T) {
	h := newHost(t)
	h.systemd.Start("reader.service")
	begun, end, left := make(chan struct{}), make(chan struct{}), make(chan struct{}, 1)
	h.systemd.Hold = func(string) { begun <- struct{}{}; <-end }
	h.systemd.Load = func(string) {
		select {
		case left <- struct{}{}:
		default:
		}
	}
	h.start()
	h.publish(kubelet(caA))
	h.wait(2 * time.Second)
	<-begun
	h.kill()
	h.start()
	defer h.kill()
	h.elapse(3 * time.Second)
	h.elapse(3 * time.Second)
	if u := h.unit("reader.service"); u.State != "pending" || !strings.Contains(u.Reason, "has a job") ||
		h.recorded("unit-action-dispatched") != 0 {
		t.Errorf("while the job of the dead agent runs: %+v, %q", u, h.trail.Names())
	}
	h.systemd.Hold = func(string) {}
	close(end)
	<-left
	h.until("reader.service", "up to date", time.Second, 10*time.Second) // its outcome is unknown: once more
	h.wantJobs("reload reader.service", "reload reader.service")
}

func TestAnActionThatFailsAgainAndAgainIsLeftAloneUntilSomethingChanges(t *testing.T) {
	h := newHost(t)
	h.systemd.Start("reader.service")
	tries, broken := 0, true
	h.systemd.Fail = func(op, _ string) error {
		if op != "reload" || !broken {
			return nil
		}
		tries++
		return errors.New("job-failed")
	}
	h.start()
	defer h.kill()
	h.publish(kubelet(caA))
	h.until("reader.service", "breaker open", time.Second, 2*time.Minute)
	u := h.unit("reader.service")
	if tries != 5 || h.recorded("unit-action-failed") != 5 || h.recorded("unit-breaker") != 1 || u.BreakerOpened.IsZero() {
		t.Errorf("%d tries, %+v, %q", tries, u, h.trail.Names())
	}
	if line := h.last.Sentence(); !strings.Contains(line, "reload reader.service fails again and again") {
		t.Errorf("the status line says %q", line)
	}
	h.elapse(25 * time.Minute)
	if tries != 5 {
		t.Errorf("%d tries with the breaker open", tries)
	}
	h.elapse(10 * time.Minute) // half open: one try
	if tries != 6 || h.recorded("unit-breaker") != 1 || h.unit("reader.service").BreakerOpened != u.BreakerOpened {
		t.Errorf("%d tries after half an hour, %+v", tries, h.unit("reader.service"))
	}
	h.publish(kubelet(caB)) // other content may fare better: all five tries again
	if s := h.unit("reader.service"); s.State != "pending" || !s.BreakerOpened.IsZero() {
		t.Errorf("after a change: %+v", s)
	}
	h.elapse(2 * time.Second)
	if tries != 7 || h.unit("reader.service").State != "failed" {
		t.Errorf("%d tries, %+v", tries, h.unit("reader.service"))
	}
	broken = false
	h.until("reader.service", "up to date", time.Second, 10*time.Second)
}

// crash ends the agent without giving it the time to do anything.
func (h *host) crash() {
	h.dir.Fail = func(string, string) error { return errDead }
	h.kill()
	h.dir.Fail = func(string, string) error { return nil }
}

func TestAnAgentThatDiesAgainAndAgainIsNoMoreEagerForIt(t *testing.T) {
	for _, verb := range []unitplan.Verb{unitplan.Reload, unitplan.TryRestart} {
		h := newHost(t)
		h.policy.Units[0].Verb = verb
		h.systemd.Start("reader.service")
		h.clock.Move(time.Minute)
		tries := 0
		h.systemd.Fail = func(op, _ string) error {
			if op != string(verb) {
				return nil
			}
			tries++
			return errors.New("job-failed")
		}
		h.disk.Put(kubeletCA, caA)
		for range 100 {
			h.start()
			h.publish(kubelet(caA))
			h.elapse(3 * time.Second)
			h.crash()
		}
		if tries != 5 {
			t.Errorf("%s: %d tries in five minutes", verb, tries)
		}
		h.start()
		if u := h.unit("reader.service"); u.State != "breaker open" || u.BreakerOpened.IsZero() ||
			u.Reason != "before this start: tried 5 times, and not seen to succeed" {
			t.Errorf("%s: after a crash %+v", verb, u)
		}
		h.elapse(31 * time.Minute) // half open, as without a crash
		h.crash()
		h.start()
		h.elapse(20 * time.Minute)
		if tries != 6 {
			t.Errorf("%s: %d tries after half an hour", verb, tries)
		}
		h.kill() // as a person does after a repair
		h.start()
		h.elapse(3 * time.Second)
		if tries != 7 {
			t.Errorf("%s: %d tries after an orderly stop", verb, tries)
		}
		h.crash()
		h.start()
		h.publish(kubelet(caB)) // other content may fare better, across a crash too
		h.elapse(3 * time.Second)
		if tries != 8 {
			t.Errorf("%s: %d tries after a change", verb, tries)
		}
		h.kill()
	}
}

func TestAnAgentThatDiesOfAnActionLeavesItAlone(t *testing.T) {
	h := newHost(t)
	h.systemd.Start("reader.service")
	h.disk.Put(kubeletCA, caA)
	begun, end, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	h.systemd.Hold = func(string) { begun <- struct{}{}; <-end }
	h.systemd.Fail = func(op, _ string) error {
		if op != "reload" {
			return nil
		}
		ended <- struct{}{}
		return errors.New("nobody hears that")
	}
	tries := 0
	for range 100 {
		h.start()
		h.publish(kubelet(caA))
		h.lapse(3 * time.Second)
		running := h.unit("reader.service").State == "running"
		if running {
			<-begun
			tries++
		}
		h.crash()
		if running {
			end <- struct{}{}
			<-ended
		}
	}
	if tries != 5 {
		t.Errorf("%d tries", tries)
	}
}

func TestAClockThatWasSetBackDoesNotKeepABreakerOpen(t *testing.T) {
	h := newHost(t)
	h.systemd.Start("reader.service")
	h.systemd.Fail = func(op, _ string) error {
		if op == "reload" {
			return errors.New("job-failed")
		}
		return nil
	}
	h.start()
	h.publish(kubelet(caA))
	h.until("reader.service", "breaker open", time.Second, 2*time.Minute)
	h.crash()
	h.clock.Set(h.clock.Now().Add(-24 * time.Hour))
	h.systemd.Fail = func(string, string) error { return nil }
	h.start()
	defer h.kill()
	h.until("reader.service", "up to date", time.Minute, 40*time.Minute)
}

func TestTheBreakerOfOneUnitHoldsUpNoOther(t *testing.T) {
	h := newHost(t)
	h.policy.Files[0].OnChange = []string{"bad.service", "reader.service"}
	h.policy.Units = append([]unitplan.Unit{{Name: "bad.service", Verb: unitplan.Reload}}, h.policy.Units...)
	h.systemd.Start("reader.service")
	h.systemd.Start("bad.service")
	h.systemd.Fail = func(op, unit string) error {
		if unit == "bad.service" && op == "reload" {
			return errors.New("job-failed")
		}
		return nil
	}
	h.start()
	defer h.kill()
	h.publish(kubelet(caA))
	h.until("bad.service", "breaker open", time.Second, 2*time.Minute)
	h.publish(kubelet(caB))
	h.until("reader.service", "up to date", time.Second, 5*time.Second)
	h.wantJobs("reload reader.service", "reload reader.service")
}

// unreachableError is the error of a bus that went away.
type unreachableError struct{ error }

func (unreachableError) Unreachable() bool { return true }

func TestALostBusIsNoFailureOfTheUnit(t *testing.T) {
	h := newHost(t)
	h.systemd.Start("reader.service")
	tries := 0
	h.systemd.Fail = func(op, _ string) error {
		if op != "reload" {
			return nil
		}
		if tries++; tries < 8 {
			return fmt.Errorf("reload: %w", unreachableError{errors.New("no bus")})
		}
		return nil
	}
	h.start()
	defer h.kill()
	h.publish(kubelet(caA))
	h.until("reader.service", "up to date", time.Second, 5*time.Minute)
	if h.recorded("unit-breaker") != 0 || h.last.Actions.Failed < 6 {
		t.Errorf("%d failed, %q", h.last.Actions.Failed, h.trail.Names())
	}
}

// postponedError is the error of an action that has to wait.
type postponedError struct {
	error
	again time.Time
}

func (e postponedError) Postponed() time.Time { return e.again }

func TestAnActionThatComesTooEarlyIsAskedForAgainWhenItIsTimeAndIsNoFailure(t *testing.T) {
	h := newHost(t)
	h.systemd.Start("reader.service")
	var tries []time.Time
	h.systemd.Fail = func(op, _ string) error {
		if op != "reload" {
			return nil
		}
		if tries = append(tries, h.clock.Now()); len(tries) > 7 {
			return nil
		}
		return fmt.Errorf("reload: %w", postponedError{errors.New("later"), h.clock.Now().Add(7 * time.Second)})
	}
	h.start()
	defer h.kill()
	h.publish(kubelet(caA))
	h.until("reader.service", "up to date", time.Second, 2*time.Minute)
	for i := 1; i < len(tries); i++ {
		if d := tries[i].Sub(tries[i-1]); d < 7*time.Second || d > 8*time.Second {
			t.Errorf("asked again after %v", d)
		}
	}
	if len(tries) != 8 || h.recorded("unit-breaker") != 0 || h.last.Actions.Failed != 0 {
		t.Errorf("%d tries, %d failed, %q", len(tries), h.last.Actions.Failed, h.trail.Names())
	}
}

// deniedError is the error of a configuration that does not allow it.
type deniedError struct{ error }

func (deniedError) Denied() bool { return true }

func TestADenialIsAskedAboutOnceAMinuteSinceThatDisturbsNobody(t *testing.T) {
	h := newHost(t)
	h.systemd.Start("reader.service")
	tries, allowed := 0, false
	h.systemd.Fail = func(op, _ string) error {
		if op != "reload" || allowed {
			return nil
		}
		tries++
		return fmt.Errorf("reload: %w", deniedError{errors.New("access denied")})
	}
	h.start()
	defer h.kill()
	h.publish(kubelet(caA))
	h.until("reader.service", "breaker open", time.Second, 2*time.Minute)
	for range 60 {
		h.elapse(10 * time.Second)
	}
	if tries < 5+8 || tries > 5+11 || h.recorded("unit-breaker") != 1 {
		t.Errorf("%d tries in ten minutes more, %q", tries, h.trail.Names())
	}
	allowed = true
	h.until("reader.service", "up to date", time.Second, 70*time.Second)
}

func TestRotationsInQuickSuccessionDoNotRunIntoTheStartLimit(t *testing.T) {
	contents := make([]string, 20)
	for i := range contents {
		contents[i] = string(testpki.NewCA(fmt.Sprint(i)))
	}
	for _, verb := range []unitplan.Verb{unitplan.TryRestart, unitplan.Restart} {
		h := newHost(t)
		h.policy.Units[0].Verb = verb
		if verb == unitplan.Restart {
			h.systemd.Install("reader.service")
		} else {
			h.systemd.Start("reader.service")
		}
		h.systemd.Limit("reader.service", 5, 10*time.Second)
		var loaded string
		h.systemd.Load = func(string) { loaded, _ = h.disk.Read(kubeletCA) }
		h.start()
		put := false
		for _, content := range contents {
			h.publish(kubelet(content))
			h.elapse(500 * time.Millisecond)
			put = put || strings.Contains(h.unit("reader.service").Reason, "start limit")
		}
		h.until("reader.service", "up to date", time.Second, time.Minute)
		if newest := contents[len(contents)-1]; loaded != newest || h.recorded("unit-action-failed") != 0 {
			t.Errorf("%s: loaded the newest: %v; %q", verb, loaded == newest, h.trail.Names())
		}
		if !put {
			t.Errorf("%s: nothing was put off: %q", verb, h.systemd.Done())
		}
		h.kill()
	}
}

func TestTheStartLimitOfAnAffectedUnitCountsToo(t *testing.T) {
	h := newHost(t)
	h.policy.Units[0] = unitplan.Unit{Name: "reader.service", Verb: unitplan.TryRestart,
		AlsoAffects: []string{"kubelet.service"}}
	h.systemd.Propagates["reader.service"] = []string{"kubelet.service"}
	h.systemd.Start("reader.service")
	h.start()
	defer h.kill()
	h.elapse(time.Hour)
	h.systemd.Start("kubelet.service")
	h.systemd.Limit("kubelet.service", 1, 30*time.Second)
	h.publish(kubelet(caA))
	h.elapse(3 * time.Second)
	if u := h.unit("reader.service"); u.State != "pending" || !strings.Contains(u.Reason, "start limit") {
		t.Errorf("beside a unit that just started: %+v", u)
	}
	h.wantJobs()
	h.until("reader.service", "up to date", 5*time.Second, time.Minute)
}

func TestAnActionThatAffectsOthersIsRefusedUntilTheyAreNamed(t *testing.T) {
	h := newHost(t)
	h.policy.Units[0].Verb = unitplan.TryRestart
	h.systemd.Propagates["reader.service"] = []string{"kubelet.service"}
	h.systemd.Start("reader.service")
	if s := h.start(); len(s.Units) != 1 || s.Units[0].State != "refused" {
		t.Errorf("before there is an object: %+v", s.Units)
	}
	h.elapse(time.Minute)
	h.publish(kubelet(caA))
	h.elapse(time.Hour)
	h.wantJobs()
	want := "try-restart reader.service would also act on kubelet.service; to allow that, add `units: {reader.service: " +
		"{alsoAffects: [kubelet.service]}}`"
	if u := h.unit("reader.service"); u.State != "refused" || u.Reason != want || h.recorded("unit-action-refused") != 1 {
		t.Errorf("have %+v, %q", u, h.trail.Names())
	}
	h.kill()
	if s := h.start(); s.Units[0].State != "refused" || h.recorded("unit-action-refused") != 1 {
		t.Errorf("at the start: %+v", s.Units)
	}
	h.kill()
	h.policy.Units[0].AlsoAffects = []string{"kubelet.service"}
	h.start()
	defer h.kill()
	h.until("reader.service", "up to date", 2*time.Second, 10*time.Second)
	h.wantJobs("try-restart reader.service")
}

func TestAOneshotRunsAfterEachChangeAlthoughItIsInactiveAndBeforeWhatLoadsItsWork(t *testing.T) {
	for _, window := range []time.Duration{0, 2 * time.Second} {
		h := newHost(t)
		h.times.BatchWindow = window
		h.oneshotBeforeReader("maker.service")
	}
}

func (h *host) oneshotBeforeReader(oneshot string) {
	h.t.Helper()
	h.policy.Files[0].OnChange = []string{"reader.service", oneshot}
	h.policy.Units = []unitplan.Unit{{Name: "reader.service", Verb: unitplan.Reload},
		{Name: oneshot, Verb: unitplan.Restart}}
	h.disk.Put(kubeletCA, caA)
	h.systemd.Start("reader.service")
	h.systemd.Install(oneshot)
	h.start()
	h.publish(kubelet(caA))
	h.until("reader.service", "up to date", time.Second, 10*time.Second)
	h.publish(kubelet(caB))
	h.until("reader.service", "up to date", time.Second, 20*time.Second)
	h.publish(kubelet(caB))
	h.elapse(time.Hour)
	h.kill()
	h.start()
	defer h.kill()
	h.elapse(time.Hour) // and not again because it is inactive
	h.wantJobs("restart "+oneshot, "reload reader.service", "restart "+oneshot, "reload reader.service")
	if u := h.unit(oneshot); u.State != "up to date" {
		h.t.Errorf("have %+v", u)
	}
}

func TestAUnitDoesNotWaitForAPrerequisiteThatIsGivenUp(t *testing.T) {
	const oneshot = "maker.service"
	h := newHost(t)
	h.policy.Files[0].OnChange = []string{"reader.service", oneshot}
	h.policy.Units = []unitplan.Unit{{Name: "reader.service", Verb: unitplan.Reload},
		{Name: oneshot, Verb: unitplan.Restart}}
	h.systemd.Start("reader.service")
	h.systemd.Install(oneshot)
	h.systemd.Fail = func(op, _ string) error {
		if op == "restart" {
			return errors.New("job-failed")
		}
		return nil
	}
	h.start()
	defer h.kill()
	h.publish(kubelet(caA))
	h.elapse(3 * time.Second)
	if u := h.unit("reader.service"); u.State != "pending" || u.Reason != "waits for "+oneshot {
		t.Errorf("while the oneshot is tried again: %+v", u)
	}
	h.until(oneshot, "breaker open", time.Second, 2*time.Minute)
	h.until("reader.service", "up to date", time.Second, 5*time.Second)
}

func TestAUnitThatIsMissingHasNothingPending(t *testing.T) {
	for _, verb := range []unitplan.Verb{unitplan.Reload, unitplan.TryRestart, unitplan.Restart} {
		h := newHost(t)
		h.policy.Units[0].Verb = verb
		h.start()
		h.publish(kubelet(caA))
		h.elapse(time.Hour)
		h.wantJobs()
		if u := h.unit("reader.service"); u.State != "not running" || len(h.systemd.Done()) > 0 {
			t.Errorf("%s: %+v", verb, u)
		}
		h.kill()
	}
}

func TestAUnitThatRestartsByItselfAfterTheChangeIsLeftAlone(t *testing.T) {
	h := newHost(t)
	h.systemd.Start("reader.service")
	h.start()
	defer h.kill()
	h.publish(kubelet(caA))
	h.clock.Move(1500 * time.Millisecond) // within the time in which changes come together
	h.systemd.Start("reader.service")
	h.elapse(time.Minute)
	h.wantJobs()
	if u := h.unit("reader.service"); u.State != "up to date" || h.recorded("unit-adopted") == 0 {
		t.Errorf("have %+v, %q", u, h.trail.Names())
	}
}

const rootCA = "/etc/kubernetes/ca.crt"

// rootField gives the unit another field to read, and returns what asks for caB in it.
func (h *host) rootField() plan.Entry {
	h.policy.Files = append(h.policy.Files, plan.FileSpec{Field: plan.RootCAData, Path: rootCA, Mode: 0o644,
		OnChange: []string{"reader.service"}})
	h.disk = agenttest.NewDisk(h.policy.Policy, h.clock)
	e := kubelet(caB)
	e.Key = plan.Key{Field: plan.RootCAData}
	return e
}

func TestAFieldThatComesLaterWithWhatTheUnitReadAtItsStartCausesNoAction(t *testing.T) {
	h := newHost(t)
	h.policy.Units[0].Verb = unitplan.TryRestart
	root := h.rootField()
	h.disk.Put(kubeletCA, caA)
	h.disk.Put(rootCA, caB)
	h.clock.Move(time.Minute)
	h.systemd.Start("reader.service")
	h.clock.Move(time.Minute)
	h.start()
	defer h.kill()
	h.publish(kubelet(caA))
	h.publish(kubelet(caA), root) // as when a second source is heard
	h.elapse(time.Minute)
	h.wantJobs()

	h.publish(kubelet(caB), root)
	h.elapse(time.Minute)
	h.wantJobs("try-restart reader.service")
}

func TestAFieldThatComesAfterAnotherStartOfTheAgentCausesNoActionEither(t *testing.T) {
	h := newHost(t)
	h.policy.Units[0].Verb = unitplan.TryRestart
	h.policy.Files[0].OnChange = nil
	root := h.rootField()
	h.disk.Put(rootCA, caB)
	h.clock.Move(time.Minute)
	h.systemd.Start("reader.service")
	h.clock.Move(time.Minute)
	h.start()
	h.publish(kubelet(caA)) // nothing of which the unit reads
	h.kill()
	h.start()
	defer h.kill()
	h.publish(kubelet(caA), root)
	h.elapse(time.Minute)
	h.wantJobs()
}

func TestTheFirstFileOfAFirstBootIsLoadedHoweverSoonItComes(t *testing.T) {
	for _, after := range []time.Duration{0, 300 * time.Millisecond, time.Minute} {
		h := newHost(t)
		h.policy.Units[0].Verb = unitplan.TryRestart
		h.start()
		h.systemd.Start("reader.service") // it waits for the agent to be ready, and for no file
		h.clock.Move(after)
		h.publish(kubelet(caA))
		h.elapse(time.Minute)
		h.wantJobs("try-restart reader.service")
		h.kill()
	}
}

func TestAStartInTheFutureProvesNothing(t *testing.T) {
	h := newHost(t)
	root := h.rootField()
	h.disk.Put(kubeletCA, caA)
	h.clock.Move(time.Hour)
	h.systemd.Start("reader.service")
	h.clock.Move(time.Minute)
	h.start()
	defer h.kill()
	h.publish(kubelet(caA))
	h.wantJobs()

	h.clock.Set(h.clock.Now().Add(-30 * time.Minute)) // before the start of the unit
	h.publish(kubelet(caA), root)
	h.elapse(time.Minute)
	h.wantJobs("reload reader.service")
}

// acted tells how long after a change the node's unit acts on it.
func acted(t *testing.T, node string, verb unitplan.Verb) time.Duration {
	t.Helper()
	h := newHost(t)
	h.node, h.policy.Units[0].Verb, h.times.RandomizedDelay = node, verb, 10*time.Minute
	h.systemd.Start("reader.service")
	h.clock.Move(time.Minute)
	h.start()
	defer h.kill()
	h.publish(kubelet(caA))
	return h.until("reader.service", "up to date", 5*time.Second, h.times.RandomizedDelay+10*time.Second)
}

func TestEachNodeRestartsAtItsOwnPlaceInTheSpreadAndReloadsAtOnce(t *testing.T) {
	places := map[time.Duration]bool{}
	for i := range 8 {
		node := fmt.Sprint("node-", i)
		at := acted(t, node, unitplan.TryRestart)
		if again := acted(t, node, unitplan.TryRestart); again != at {
			t.Errorf("%s restarts after %v, and the next time after %v", node, at, again)
		}
		places[at] = true
		if reload := acted(t, node, unitplan.Reload); reload > 5*time.Second {
			t.Errorf("%s reloads after %v", node, reload)
		}
	}
	if len(places) < 6 {
		t.Errorf("8 nodes restart at %d different times: %v", len(places), places)
	}
}

func TestTenChangesInTwoSecondsAreOneAction(t *testing.T) {
	h := newHost(t)
	h.policy.Files[0].OnChange = []string{"other.service", "reader.service"}
	h.policy.Units = append([]unitplan.Unit{{Name: "other.service", Verb: unitplan.TryRestart}}, h.policy.Units...)
	h.systemd.Start("reader.service")
	h.systemd.Start("other.service")
	h.start()
	defer h.kill()
	for i := range 10 {
		h.publish(kubelet([]string{caA, caB}[i%2]), registry(fmt.Sprint("r", i), caA))
		h.clock.Move(190 * time.Millisecond)
	}
	h.until("other.service", "up to date", time.Second, 20*time.Second)
	h.until("reader.service", "up to date", time.Second, 20*time.Second)
	done := h.systemd.Done()
	slices.Sort(done)
	if want := []string{"reload reader.service", "try-restart other.service"}; !slices.Equal(done, want) {
		t.Errorf("systemd did %q, want %q", done, want)
	}
}

// TestContentThatIsTakenBackUntriedClosesNoBreaker: what failed again and again is what the file has again, however
// often something else was in it for a moment.
func TestContentThatIsTakenBackUntriedClosesNoBreaker(t *testing.T) {
	h := newHost(t)
	h.systemd.Start("reader.service")
	tries := 0
	h.systemd.Fail = func(op, _ string) error {
		if op == "reload" {
			tries++
			return errDead
		}
		return nil
	}
	h.start()
	defer h.kill()
	h.publish(kubelet(caA))
	h.until("reader.service", "breaker open", time.Second, 2*time.Minute)
	for range 3 {
		h.publish(kubelet(caB))
		h.publish(kubelet(caA))
		h.elapse(3 * time.Second)
	}
	if u := h.unit("reader.service"); tries != 5 || u.State != "breaker open" {
		t.Errorf("%d tries; %+v", tries, u)
	}
	h.elapse(35 * time.Minute)
	if tries != 6 {
		t.Errorf("%d tries after the pause", tries)
	}
}
