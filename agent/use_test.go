// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/agenttest"
	"github.com/node-cert-agent/node-cert-agent/agent/desired"
	"github.com/node-cert-agent/node-cert-agent/agent/liveness"
	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
)

const server = "127.0.0.1:10250"

// provenHost is a host whose kubelet is asked; its reader is no unit of the allowlist.
func provenHost(t *testing.T) (*host, *agenttest.Consumers) {
	h := newHost(t)
	h.policy.Files[0].OnChange, h.policy.Units = nil, nil
	h.policy.Files[0].Verify = []liveness.Consumer{{Kind: liveness.ClientCA, Address: server, Mismatch: liveness.Stale}}
	c := agenttest.NewConsumers(h.clock)
	h.prober = c
	return h, c
}

// awaitUse waits until the kubelet's file stands so, and checks that nothing else is said before
// than what may be.
func (h *host) awaitUse(want liveness.State, between ...liveness.State) report.Consumer {
	h.t.Helper()
	for {
		if len(h.last.Files) > 0 && len(h.last.Files[0].Consumers) > 0 {
			c := h.last.Files[0].Consumers[0]
			if c.State == want {
				return c
			}
			if !slices.Contains(between, c.State) {
				h.t.Fatalf("the kubelet is %+v, want it %s", c, want)
			}
		}
		h.awaitReconcile()
	}
}

func (h *host) wantRecords(kind string, want int) {
	h.t.Helper()
	n := 0
	for _, name := range h.trail.Names() {
		if name == kind {
			n++
		}
	}
	if n != want {
		h.t.Errorf("%d records of %s, want %d: %q", n, kind, want, h.trail.Names())
	}
}

func TestAFileIsLiveOnceItsConsumerUsesIt(t *testing.T) {
	h, c := provenHost(t)
	c.Use(server, caA)
	h.start()
	defer h.kill()
	h.publish(kubelet(caA))
	h.awaitUse(liveness.Live, liveness.Waiting)
	h.publish(kubelet(caA + caB))
	h.awaitUse(liveness.Waiting)
	c.Use(server, caA+caB)
	h.awaitUse(liveness.Live, liveness.Waiting)
	h.wantRecords("consumer-live", 2)
	h.wantRecords("consumer-stale", 0)
}

func TestAConsumerThatMissesAChangeIsStaleUntilItIsSeenAgain(t *testing.T) {
	h, c := provenHost(t)
	c.Use(server, caA)
	h.start()
	defer h.kill()
	h.publish(kubelet(caB))
	c.Await(1)
	h.clock.Move(time.Minute)
	if s := h.awaitUse(liveness.Stale, liveness.Waiting); s.Reason != "uses something else" || s.Since.IsZero() {
		t.Errorf("it is %+v", s)
	}
	if line := h.last.Sentence(); !strings.HasSuffix(line, "; 1 files not in use") {
		t.Errorf("the sentence is %q", line)
	}
	asked := len(c.Asked())
	for range 500 { // long enough for a question to be seen
		h.elapse(time.Second)
	}
	if len(c.Asked()) != asked {
		t.Error("it was asked again before the resync")
	}
	for len(c.Asked()) < asked+2 { // the second time means that the first answer was taken
		h.elapse(2 * time.Hour)
	}
	h.wantRecords("consumer-stale", 1)
	c.Use(server, caB)
	for h.last.Files[0].Use() == liveness.Stale {
		h.elapse(2 * time.Hour)
	}
	h.awaitUse(liveness.Live)
	h.wantRecords("consumer-live", 1)
	asked = len(c.Asked())
	for range 500 { // long enough for a question to be seen
		h.elapse(2 * time.Hour)
	}
	if len(c.Asked()) != asked {
		t.Error("it was asked again though it is live")
	}
}

func TestANewerChangeVoidsTheQuestionAboutTheLast(t *testing.T) {
	h, c := provenHost(t)
	c.Use(server, caA)
	h.start()
	defer h.kill()
	h.publish(kubelet(caA))
	h.awaitUse(liveness.Live, liveness.Waiting)
	h.publish(kubelet(caB))
	h.publish(kubelet(caA + caB)) // nobody waited for the answer about B
	h.wantFile(kubeletCA, caA+caB)
	c.Use(server, caB)
	h.elapse(time.Second)
	h.awaitUse(liveness.Waiting)
	c.Use(server, caA+caB)
	h.awaitUse(liveness.Live, liveness.Waiting)
	h.wantRecords("consumer-live", 2)
	h.wantRecords("consumer-stale", 0)
	asked := c.Asked()
	both := slices.IndexFunc(asked, func(want liveness.ProbeTarget) bool { return len(want.Certs) == 2 })
	if got := subjects(asked[both].Older); !slices.Equal(got, []string{"CN=a", "CN=b"}) {
		t.Errorf("the consumer may still use %q, want both versions since it was last live", got)
	}
	for range 20 {
		h.publish(kubelet(caB))
		h.awaitUse(liveness.Waiting)
		h.publish(kubelet(caA))
		h.elapse(time.Millisecond)
		h.awaitUse(liveness.Waiting)
	}
}

func subjects(bundles [][]pki.Cert) (all []string) {
	for _, b := range bundles {
		for _, c := range b {
			all = append(all, c.Subject)
		}
	}
	return all
}

func TestWhatIsInPlaceAtTheStartIsProvenThen(t *testing.T) {
	h, c := provenHost(t)
	c.Use(server, caA)
	h.start()
	h.publish(kubelet(caA))
	h.awaitUse(liveness.Live, liveness.Waiting)
	h.kill()
	h.start()
	defer h.kill()
	h.awaitUse(liveness.Live, liveness.Waiting)
}

func TestWhatAWriteReplacedIsKnownAtTheFirstQuestion(t *testing.T) {
	h, c := provenHost(t)
	h.disk.Put(kubeletCA, caA)
	c.Use(server, caB)
	h.start()
	defer h.kill()
	h.publish(kubelet(caB))
	h.awaitUse(liveness.Live, liveness.Waiting)
	if got := subjects(c.Asked()[0].Older); !slices.Equal(got, []string{"CN=a"}) {
		t.Errorf("the consumer may still use %q, want what was on disk", got)
	}
}

func TestAHealedFileIsProvenAgain(t *testing.T) {
	h, c := provenHost(t)
	c.Use(server, caA)
	h.start()
	defer h.kill()
	h.publish(kubelet(caA))
	h.awaitUse(liveness.Live, liveness.Waiting)
	h.disk.Put(kubeletCA, caB)
	c.Use(server, caB)
	h.elapse(time.Second)
	h.wantFile(kubeletCA, caA)
	h.awaitUse(liveness.Waiting)
	c.Use(server, caA)
	h.awaitUse(liveness.Live, liveness.Waiting)
}

func TestNobodyIsStaleWhileAUnitHasYetToAct(t *testing.T) {
	h, c := provenHost(t)
	h.policy.Files[0].OnChange, h.policy.Units = []string{"reader.service"},
		[]unitplan.Unit{{Name: "reader.service", Verb: unitplan.TryRestart}}
	h.systemd.Start("reader.service")
	h.clock.Move(time.Minute)
	var works atomic.Bool
	h.systemd.Fail = func(operation, _ string) error {
		if operation == string(unitplan.TryRestart) && !works.Load() {
			return errors.New("job failed")
		}
		return nil
	}
	c.Use(server, caA)
	h.start()
	defer h.kill()
	h.publish(kubelet(caB))
	c.Await(1)
	h.clock.Move(time.Minute)
	for h.last.Files[0].Consumers[0].Reason != "reader.service has yet to act" {
		h.awaitReconcile()
	}
	h.awaitUse(liveness.Waiting)
	works.Store(true)
	c.Use(server, caB) // which the unit brings about
	h.elapse(2 * time.Minute)
	h.awaitUse(liveness.Live, liveness.Waiting)
	h.wantRecords("consumer-stale", 0)
}

func TestWhoCannotBeToldRaisesNoAlarm(t *testing.T) {
	h, c := provenHost(t) // nothing listens
	h.start()
	defer h.kill()
	h.publish(kubelet(caA))
	c.Await(1)
	h.clock.Move(time.Minute)
	if s := h.awaitUse(liveness.Unknown, liveness.Waiting); s.Reason != "nothing listens there" {
		t.Errorf("it is %+v", s)
	}
	h.wantRecords("consumer-live", 0)
	h.wantRecords("consumer-stale", 0)
}

// TestAnAnswerInTheSettleDelayDoesNotShowANewVersionAsDone: the change is on the disk, and what it makes necessary is not
// known yet.
func TestAnAnswerInTheSettleDelayDoesNotShowANewVersionAsDone(t *testing.T) {
	h := newHost(t)
	h.times.SettleDelay = time.Second
	h.policy.Files[0].Verify = []liveness.Consumer{{Kind: liveness.ClientCA, Address: server, Mismatch: liveness.Stale}}
	c := agenttest.NewConsumers(h.clock)
	h.prober = c
	h.disk.Put(kubeletCA, caA)
	h.clock.Move(time.Minute)
	h.systemd.Start("reader.service")
	h.clock.Move(time.Minute)
	h.start()
	defer h.kill()
	version := func(v string, entries ...plan.Entry) plan.Desired {
		return plan.Desired{ControllerConfig: plan.ControllerConfig{ResourceVersion: v}, Entries: entries, Verified: true}
	}
	if s := h.ask(version("1", kubelet(caA), registry("a", caA))); s.Units[0].State != "up to date" {
		t.Fatalf("the unit is %+v", s.Units[0])
	}
	c.Await(1)
	h.asked++ // by the question
	d := version("2", kubelet(caB), registry("a", caA))
	h.turnOnly(func() { h.source <- desired.Reading{State: "following", Desired: &d} })
	h.wantFile(kubeletCA, caB)

	c.Use(server, caA)
	taken := make(chan struct{})
	go func() { h.clock.AwaitAsked(h.asked + 1); close(taken) }()
	select {
	case <-taken:
		h.asked++
	case s := <-h.report.Statuses:
		t.Fatalf("version %s is shown, and the unit %s", s.ControllerConfig.ResourceVersion, s.Units[0].State)
	}
	h.wantRecords("consumer-live", 1)
	if s := h.wait(time.Second); s.ControllerConfig.ResourceVersion != "2" || s.Units[0].State != "pending" {
		t.Errorf("after the rest version %s is shown, and the unit %s", s.ControllerConfig.ResourceVersion, s.Units[0].State)
	}
}
