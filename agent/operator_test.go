// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/agenttest"
	"github.com/node-cert-agent/node-cert-agent/agent/desired"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/agent/state"
	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// apply has the operator apply files and waits for the reconcile.
func (h *host) apply(id string, entries ...plan.Entry) report.Status {
	h.t.Helper()
	a := &state.Applied{ID: id, Source: "a file", At: h.clock.Now()}
	for _, e := range entries {
		a.Files = append(a.Files, state.AppliedFile{Key: e.Key, Data: e.Data})
	}
	h.overrides.Set(state.Overrides{Applied: a}, nil)
	return h.turn()
}

// turn makes a reconcile happen.
func (h *host) turn() report.Status {
	h.t.Helper()
	for {
		select {
		case h.watcher <- struct{}{}:
			return h.awaitReconcile()
		case s := <-h.report.Statuses:
			h.sawStatus(s)
		}
	}
}

func TestWhatIsAppliedWinsUntilTheControllerConfigAsksForSomethingNew(t *testing.T) {
	h := newHost(t)
	h.start()
	defer func() { h.kill() }()
	h.publish(kubelet(caA), registry("r", caA))
	if s := h.apply("1", kubelet(caB)); s.Override == nil || s.Override.State != "in force" {
		t.Errorf("the status says %+v", s.Override)
	}
	h.wantFile(kubeletCA, caB)
	h.wantFile(certsD+"r/ca.crt", caA)
	h.publish(kubelet(caA), registry("r", caA)) // nothing new
	h.wantFile(kubeletCA, caB)
	h.kill()
	h.start()
	h.publish(kubelet(caA), registry("r", caA)) // nor after a restart
	h.wantFile(kubeletCA, caB)
	if s := h.publish(kubelet(caA), registry("r", caB)); s.Override.State != "overtaken by the ControllerConfig" {
		t.Errorf("the status says %+v", s.Override)
	}
	h.wantFile(kubeletCA, caA)
	h.publish(kubelet(caA), registry("r", caA)) // what is overtaken stays so
	h.wantFile(kubeletCA, caA)
}

func TestTheConfigMapAloneDoesNotOvertake(t *testing.T) {
	h := newHost(t)
	h.start()
	defer func() { h.kill() }()
	h.publish(kubelet(caA), registry("r", caA))
	h.apply("1", kubelet(caB))
	h.wantFile(kubeletCA, caB)
	h.kill()
	h.start()
	// of which no field here takes
	h.source <- desired.Reading{State: "forbidden", Desired: &plan.Desired{Verified: true, Partial: true}}
	h.awaitReconcile()
	h.publish(kubelet(caA), registry("r", caA))
	h.wantFile(kubeletCA, caB)
}

func TestWhatIsTakenBackIsTheControllerConfigsAgain(t *testing.T) {
	h := newHost(t)
	h.start()
	defer h.kill()
	h.publish(kubelet(caA))
	h.apply("1", kubelet(caB))
	h.overrides.Set(state.Overrides{}, nil)
	h.turn()
	h.wantFile(kubeletCA, caA)
	want := []string{"override-set", "override-reverted"}
	if got := slices.DeleteFunc(h.trail.Names(), func(n string) bool {
		return !strings.HasPrefix(n, "override")
	}); !slices.Equal(got, want) {
		t.Errorf("the trail holds %q", got)
	}
}

func TestAHostWithoutAnAPIServerIsHelpedByHand(t *testing.T) {
	h := newHost(t)
	h.start()
	h.publish(kubelet(caA), registry("r", caA))
	h.kill()
	h.start() // and nobody to read the ControllerConfig from
	defer func() { h.kill() }()
	h.apply("1", kubelet(caB))
	h.wantFile(kubeletCA, caB)
	h.wantFile(certsD+"r/ca.crt", caA)
	h.kill()
	h.disk.Delete(kubeletCA)
	h.start()
	h.wantFile(kubeletCA, caB)
	h.publish(kubelet(caA), registry("r", caA)) // as it was before
	h.wantFile(kubeletCA, caB)
}

func TestOnAHostThatNeverReadTheControllerConfigItsFirstContentDoesNotOvertake(t *testing.T) {
	h := newHost(t)
	h.start()
	defer h.kill()
	h.apply("1", kubelet(caB))
	h.wantFile(kubeletCA, caB)
	h.publish(kubelet(caA))
	h.wantFile(kubeletCA, caB)
	h.publish(kubelet(caA + caB))
	h.wantFile(kubeletCA, caA+caB)
}

func TestAnOverrideThatCannotBeReadKeepsTheLastInForce(t *testing.T) {
	h := newHost(t)
	h.start()
	defer h.kill()
	h.publish(kubelet(caA))
	h.apply("1", kubelet(caB))
	h.overrides.Set(state.Overrides{}, errors.New("input/output error"))
	if s := h.turn(); s.Override == nil || s.Override.State != "in force" {
		t.Errorf("the status says %+v", s.Override)
	}
	h.wantFile(kubeletCA, caB)
}

func TestAPauseCountsAlthoughWhatWasAppliedCannotBeRead(t *testing.T) {
	h := newHost(t)
	h.systemd.Start("reader.service")
	h.clock.Move(time.Minute)
	pause := &state.Pause{Reason: "freeze", At: h.clock.Now(), Until: h.clock.Now().Add(time.Hour), Boot: h.clock.Boot(),
		Uptime: h.clock.Uptime()}
	h.overrides.Set(state.Overrides{Pause: pause}, errors.New("applied.json is not the JSON we wrote"))
	h.start()
	defer h.kill()
	h.publish(kubelet(caA))
	h.elapse(time.Minute)
	h.wantJobs()
	if !strings.HasPrefix(h.last.Paused, "freeze") {
		t.Errorf("paused is %q", h.last.Paused)
	}
	h.overrides.Set(state.Overrides{}, nil)
	h.turn()
	h.elapse(time.Minute)
	h.wantJobs("reload reader.service")
}

func TestAPauseEndsByTheClockOrByTheTimeThatPassed(t *testing.T) {
	for sentence, set := range map[string]func(*host){
		"the clock runs":      func(h *host) {},
		"the clock is behind": func(h *host) { h.clock.Set(h.clock.Now().Add(-24 * time.Hour)) },
	} {
		t.Run(sentence, func(t *testing.T) {
			h := newHost(t)
			h.policy.Trust.Hold = time.Minute
			h.start()
			defer h.kill()
			h.publish(kubelet(caA))
			h.overrides.Set(state.Overrides{Pause: &state.Pause{Reason: "freeze", At: h.clock.Now(),
				Until: h.clock.Now().Add(time.Hour), Boot: h.clock.Boot(), Uptime: h.clock.Uptime()}}, nil)
			set(h)
			h.turn()
			h.publish(kubelet(caB))
			h.elapse(59 * time.Minute)
			h.wantFile(kubeletCA, caB+caA)
			if !strings.HasPrefix(h.last.Paused, "freeze (until ") {
				t.Errorf("paused is %q", h.last.Paused)
			}
			h.wait(time.Minute) // its end needs no event
			h.wantFile(kubeletCA, caB)
		})
	}
}

func TestOnceSeesTheUnitActionsThrough(t *testing.T) {
	h := newHost(t)
	h.systemd.Start("reader.service")
	h.clock.Move(time.Minute)
	h.overrides.Set(state.Overrides{Applied: &state.Applied{ID: "1", Now: true,
		Files: []state.AppliedFile{{Key: kubelet(caA).Key, Data: []byte(caA)}}}}, nil)
	a := h.agent()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	go func() {
		for {
			select {
			case <-h.report.Statuses:
			case <-ctx.Done():
				return
			}
		}
	}()
	s, err := a.Once(ctx)
	if err != nil || len(s.Units) != 1 || s.Units[0].State != "up to date" {
		t.Errorf("ends with %+v, %v", s, err)
	}
	h.wantFile(kubeletCA, caA)
	h.wantJobs("reload reader.service")
}

func TestWhatIsTakenBackLeavesWhatWasKeptBefore(t *testing.T) {
	h := newHost(t)
	h.start()
	defer h.kill()
	h.publish(kubelet(caA), registry("r", caA))
	h.publish(registry("r", caA)) // the field is empty
	h.apply("1", kubelet(caB))
	h.overrides.Set(state.Overrides{}, nil)
	h.turn()
	h.wantFile(kubeletCA, caA+caB)
}

// confirm is apply by an operator who confirms every removal.
func (h *host) confirm(id string, entries ...plan.Entry) report.Status {
	h.t.Helper()
	a := &state.Applied{ID: id, Source: "a file", At: h.clock.Now(), Now: true}
	for _, e := range entries {
		a.Files = append(a.Files, state.AppliedFile{Key: e.Key, Data: e.Data})
		if e.Field.List() {
			a.Lists = []plan.Field{e.Field}
		}
	}
	h.overrides.Set(state.Overrides{Applied: a}, nil)
	return h.turn()
}

func kubeconfig(data string) plan.Entry {
	e := kubelet(data)
	e.Field = plan.KubeconfigCAData
	return e
}

// twoSources is a host that also takes from the ConfigMap, for a unit whose restarts are spread.
func twoSources(t *testing.T) *host {
	h := newHost(t)
	h.policy.Trust.Hold, h.times.RandomizedDelay = time.Hour, 10*time.Hour
	h.policy.Files = append(h.policy.Files, plan.FileSpec{Field: plan.KubeconfigCAData, Path: "/etc/kubernetes/kubeconfig",
		Mode: 0o600, OnChange: []string{"kubelet.service"}})
	h.policy.Units = []unitplan.Unit{{Name: "kubelet.service", Verb: unitplan.TryRestart}}
	h.disk = agenttest.NewDisk(h.policy.Policy, h.clock)
	h.systemd.Start("kubelet.service")
	h.clock.Move(time.Minute)
	return h
}

func TestAConfirmationIsOfWhatTheOperatorSaw(t *testing.T) {
	h := twoSources(t)
	h.start()
	defer func() { h.kill() }()
	h.publish(kubelet(caA), kubeconfig(caA+caB))
	h.publish(kubelet(caA), kubeconfig(caB+caA))
	h.elapse(11 * time.Hour)
	h.confirm("1", kubelet(caB))
	h.wantFile(kubeletCA, caB)
	jobs := h.systemd.Done()
	for _, restarted := range []bool{false, true} {
		if restarted {
			h.kill()
			h.start()
		}
		h.elapse(5 * time.Hour)
		another := string(testpki.NewCA(fmt.Sprint("restarted ", restarted)))
		h.publish(kubelet(caA), kubeconfig(caB+caA+another))
		h.publish(kubelet(caA), kubeconfig(caB+caA))
		h.wantFile("/etc/kubernetes/kubeconfig", caB+caA+another)
		h.elapse(time.Minute)
		h.wantFile("/etc/kubernetes/kubeconfig", caB+caA+another)
		h.wantJobs(jobs...)
		h.elapse(time.Hour)
		h.wantFile("/etc/kubernetes/kubeconfig", caB+caA)
		h.elapse(11 * time.Hour)
		jobs = h.systemd.Done()
	}
}

// TestAConfirmationIsNotGivenAgainToWhoLostTheMemoryOfIt: although it cannot be read at the start. Found by the
// simulator.
func TestAConfirmationIsNotGivenAgainToWhoLostTheMemoryOfIt(t *testing.T) {
	h := newHost(t)
	h.policy.Trust.Hold = time.Hour
	h.start()
	h.publish(kubelet(caA))
	h.confirm("1", registry("r", caA))
	h.publish(kubelet(caA + caB))
	h.kill()
	confirmed, _ := h.overrides.Overrides(state.Overrides{})
	h.overrides.Set(state.Overrides{}, errors.New("the disk fails"))
	*h.dir = *agenttest.NewDir()
	h.start()
	defer h.kill()
	h.publish(kubelet(caA))
	h.overrides.Set(confirmed, nil)
	h.turn()
	h.elapse(time.Minute)
	h.wantFile(kubeletCA, caA+caB)
	h.elapse(time.Hour)
	h.wantFile(kubeletCA, caA)
}

func TestAConfirmationHoldsForWhatHasToWaitForProof(t *testing.T) {
	h := newHost(t)
	h.policy.Trust = plan.Trust{Hold: 5 * time.Hour, Source: plan.KubeAPIServerServingCAData}
	h.trust.SetAnswer(func([]string) (string, error) { return "", errors.New("connection refused") })
	h.start()
	defer func() { h.kill() }()
	h.publish(kubelet(caA + caB))
	h.confirm("1", kubelet(caB))
	h.wantFile(kubeletCA, caB+caA)
	h.kill()
	h.trust.SetAnswer(nil)
	h.start()
	h.publish(kubelet(caA + caB))
	for deadline := time.Now().Add(10 * time.Second); len(h.last.Held) > 0 && time.Now().Before(deadline); {
		h.turn() // until the answer has come
	}
	h.wantFile(kubeletCA, caB)
}

func TestManyRemovalsGoWhenTheyAreConfirmedAndNoOthers(t *testing.T) {
	h := newHost(t)
	h.policy.Trust.Hold = time.Hour
	h.start()
	defer h.kill()
	h.publish(registry("r", caA), registry("s", caA), registry("t", caA))
	h.confirm("1", registry("r", caA))
	h.wantFile(certsD+"s/ca.crt", "")
	h.wantFile(certsD+"t/ca.crt", "")
	h.wantFile(certsD+"r/ca.crt", caA)
}

func TestAConfirmationEndsWithTheReconcileAlthoughAFieldFails(t *testing.T) {
	h := twoSources(t)
	h.start()
	defer h.kill()
	h.publish(kubelet(caA), kubeconfig(caB+caA))
	h.elapse(11 * time.Hour)
	h.disk.Fail = func(op, path string) error {
		if op == "stage" && path == kubeletCA {
			return errors.New("read-only file system")
		}
		return nil
	}
	h.confirm("1", kubelet(caB))
	h.publish(kubelet(caA), kubeconfig(caB))
	h.wait(2 * time.Second)
	h.wantFile("/etc/kubernetes/kubeconfig", caB+caA)
	h.disk.Fail = noFailure
	h.elapse(2 * time.Minute)
	h.wantFile(kubeletCA, caB) // what was confirmed then still is
	h.wantFile("/etc/kubernetes/kubeconfig", caB+caA)
}

func TestAnOverrideOfWhichNobodyRemembersAnythingConfirmsNothing(t *testing.T) {
	h := newHost(t)
	h.policy.Trust.Hold = time.Hour
	h.start()
	defer func() { h.kill() }()
	h.publish(kubelet(caA), registry("s", caA))
	h.confirm("1", kubelet(caB))
	h.wantFile(kubeletCA, caB)
	h.publish(kubelet(caA), registry("s", caB)) // which overtakes it
	h.kill()
	if err := h.dir.WriteFile("state.json", []byte("{")); err != nil {
		t.Fatal(err)
	}
	h.start()
	h.publish(kubelet(caA), registry("s", caB))
	h.wantFile(kubeletCA, caB+caA)
	if s := h.confirm("2", kubelet(caB)); len(s.Held) != 0 {
		t.Errorf("held against a new override: %+v", s.Held)
	}
	h.wantFile(kubeletCA, caB)
}
