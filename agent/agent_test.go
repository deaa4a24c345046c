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

	"go.uber.org/zap"

	"github.com/node-cert-agent/node-cert-agent/agent"
	"github.com/node-cert-agent/node-cert-agent/agent/agenttest"
	"github.com/node-cert-agent/node-cert-agent/agent/consumers"
	"github.com/node-cert-agent/node-cert-agent/agent/desired"
	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/agent/state"
	"github.com/node-cert-agent/node-cert-agent/agent/unitactions"
	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

const (
	kubeletCA = "/etc/kubernetes/kubelet-ca.crt"
	certsD    = "/etc/docker/certs.d/"
)

var (
	caA = string(testpki.NewCA("a"))
	caB = string(testpki.NewCA("b"))
)

// host is a machine whose agent can be killed and started again: disk, systemd and state directory
// stay, everything else is new.
type host struct {
	t         *testing.T
	clock     *agenttest.Clock
	disk      *agenttest.Disk
	systemd   *agenttest.Systemd
	dir       *agenttest.Dir
	policy    unitplan.Policy
	times     agent.Times
	prober    consumers.Prober
	trust     *agenttest.Trust
	overrides *agenttest.Operator
	watched   watched
	node      string

	trail   *agenttest.Trail
	source  chan desired.Reading
	watcher agenttest.FileWatcher
	report  *agenttest.Reporter
	stop    func()
	last    report.Status
	asked   int // how often the loop has asked for a timer once it waits again
}

func newHost(t *testing.T) *host {
	h := &host{t: t, node: "n", clock: agenttest.NewClock(), dir: agenttest.NewDir(), trust: &agenttest.Trust{},
		overrides: &agenttest.Operator{}}
	h.times = agent.Times{Resync: time.Hour, RetryMin: time.Second, RetryMax: time.Minute, Probe: time.Minute,
		Times: unitactions.Times{BatchWindow: 2 * time.Second, Job: time.Minute, Breaker: 30 * time.Minute}}
	h.policy = unitplan.Policy{
		Policy: plan.Policy{Files: []plan.FileSpec{
			{Field: plan.KubeAPIServerServingCAData, Path: kubeletCA, Mode: 0o644, OnChange: []string{"reader.service"}},
			{Field: plan.ImageRegistryBundleData, Path: certsD + "{name}/ca.crt", Mode: 0o644},
		}},
		Units: []unitplan.Unit{{Name: "reader.service", Verb: unitplan.Reload}},
	}
	h.disk = agenttest.NewDisk(h.policy.Policy, h.clock)
	h.systemd = agenttest.NewSystemd(h.clock)
	return h
}

// agent is a new one on this host.
func (h *host) agent() *agent.Agent {
	h.trail, h.source, h.watcher, h.report = &agenttest.Trail{}, make(chan desired.Reading), make(agenttest.FileWatcher),
		agenttest.NewReporter()
	return &agent.Agent{Readings: h.source, FileWatcher: recordingWatcher{h.watcher, &h.watched}, Writer: h.disk,
		Units: h.systemd, Prober: h.prober, Trust: h.trust, Overrides: h.overrides.Overrides, Store: state.Open(h.dir),
		Trail: h.trail, Report: h.report, Clock: h.clock, Log: zap.NewNop(), Policy: h.policy, Node: h.node,
		Times: h.times, Remember: remember}
}

// start runs an agent until kill, and returns when it is ready.
func (h *host) start() report.Status {
	h.t.Helper()
	a := h.agent()
	h.asked = h.clock.Asked()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	h.stop = func() {
		cancel()
		for {
			select {
			case <-h.report.Statuses:
			case err := <-ended:
				if err != nil {
					h.t.Errorf("the agent ended with %v", err)
				}
				return
			}
		}
	}
	s := h.awaitReconcile()
	<-h.report.IsReady()
	return s
}

// watched are the directories in which a change would be noticed, unless watching them fails.
type watched struct {
	directories []string
	sets        int
	err         error
}

// recordingWatcher is a FileWatcher that keeps what it is told to watch.
type recordingWatcher struct {
	agenttest.FileWatcher
	*watched
}

// Set implements agent.FileWatcher.
func (f recordingWatcher) Set(directories []string) error {
	f.sets++
	if f.err != nil {
		return f.err
	}
	f.directories = directories
	return nil
}

// kill ends the agent where it stands. The fakes hold nothing back, so this is as good as SIGKILL.
func (h *host) kill() { h.stop() }

// sawStatus takes the status at the end of a reconcile, after which the loop asks for a timer and waits.
func (h *host) sawStatus(s report.Status) {
	h.last = s
	h.asked++
}

// move lets time pass for a loop that waits.
func (h *host) move(d time.Duration) {
	h.clock.AwaitAsked(h.asked)
	h.clock.Move(d)
}

// awaitReconcile waits for the end of a reconcile.
func (h *host) awaitReconcile() report.Status {
	h.t.Helper()
	select {
	case s := <-h.report.Statuses:
		h.sawStatus(s)
	case <-time.After(10 * time.Second):
		h.t.Fatal("no reconcile ended")
	}
	return h.last
}

// publish lets the ControllerConfig ask for these files and waits for the reconcile.
func (h *host) publish(entries ...plan.Entry) report.Status {
	h.t.Helper()
	return h.ask(plan.Desired{Entries: entries})
}

// ask is publish for an object that says more than contents.
func (h *host) ask(d plan.Desired) report.Status {
	h.t.Helper()
	d.Verified, d.Listed = true, map[plan.Field]bool{}
	for _, e := range d.Entries {
		d.Listed[e.Field] = true
	}
	now := h.clock.Now()
	for {
		select {
		case h.source <- desired.Reading{State: "following", Desired: &d, Time: desired.ServerTime{Date: now, Seen: now}}:
			return h.awaitReconcile()
		case s := <-h.report.Statuses: // a reconcile that a timer brought
			h.sawStatus(s)
		}
	}
}

// elapse lets time pass and makes sure that a reconcile comes after it, whatever else turns the loop, and that
// the jobs it brought have ended.
func (h *host) elapse(d time.Duration) {
	h.t.Helper()
	h.lapse(d)
	h.settled()
}

// lapse is elapse without waiting for jobs.
func (h *host) lapse(d time.Duration) {
	h.t.Helper()
	h.move(d)
	for {
		select {
		case h.watcher <- struct{}{}:
			h.awaitReconcile()
			return
		case s := <-h.report.Statuses:
			h.sawStatus(s)
		}
	}
}

// wait lets time pass until the loop turns by itself.
func (h *host) wait(d time.Duration) report.Status {
	h.t.Helper()
	h.move(d)
	return h.awaitReconcile()
}

// settled waits until no unit job runs.
func (h *host) settled() report.Status {
	h.t.Helper()
	for slices.ContainsFunc(h.last.Units, func(u report.Unit) bool { return u.State == "running" }) {
		h.awaitReconcile()
	}
	return h.last
}

// turnOnly is a turn of the loop without a reconcile.
func (h *host) turnOnly(change func()) {
	h.clock.AwaitAsked(h.asked)
	change()
	h.asked++
	h.clock.AwaitAsked(h.asked)
}

// offer lets the ControllerConfig ask for these files and waits for nothing.
func (h *host) offer(entries ...plan.Entry) {
	h.source <- desired.Reading{State: "following", Desired: &plan.Desired{Entries: entries, Verified: true}}
}

func noFailure(string, string) error { return nil }

func (h *host) wantFile(path, want string) {
	h.t.Helper()
	if got, ok := h.disk.Read(path); got != want || ok != (want != "") {
		h.t.Errorf("%s holds %.60q (there: %v), want %.60q", path, got, ok, want)
	}
}

func (h *host) wantJobs(want ...string) {
	h.t.Helper()
	if got := h.systemd.Done(); !slices.Equal(got, want) {
		h.t.Errorf("systemd did %q, want %q", got, want)
	}
}

func remember(k plan.Key, data []byte) (plan.Entry, error) {
	b, err := pki.Parse(data, pki.Options{AllowLeaf: true})
	return plan.Entry{Key: k, Data: data, Digest: plan.DigestOf(data), Certs: b.Certs}, err
}

func kubelet(data string) plan.Entry {
	e, err := remember(plan.Key{Field: plan.KubeAPIServerServingCAData}, []byte(data))
	if err != nil {
		panic(err)
	}
	return e
}

func registry(name, data string) plan.Entry {
	e := kubelet(data)
	e.Key = plan.Key{Field: plan.ImageRegistryBundleData, Name: name}
	return e
}

func TestAChangeIsWrittenAndTheUnitReloadedOnce(t *testing.T) {
	h := newHost(t)
	h.systemd.Start("reader.service")
	h.clock.Move(time.Minute)
	h.start()
	defer h.kill()
	if s := h.publish(kubelet(caA)); s.Units[0].State != "pending" {
		t.Errorf("after the write the unit is %q, want pending until changes have come together", s.Units[0].State)
	}
	h.wantFile(kubeletCA, caA)
	h.wantJobs()
	h.wait(2 * time.Second)
	if s := h.settled(); s.Units[0].State != "up to date" {
		t.Errorf("after the reload the unit is %q", s.Units[0].State)
	}
	h.wantJobs("reload reader.service")
	h.wait(time.Hour + 6*time.Minute)
	h.wantJobs("reload reader.service")
	want := []string{"started", "no-memory", "unit-adopted", "source-state", "intent", "written", "unit-action-dispatched",
		"unit-action-done"}
	if got := slices.DeleteFunc(h.trail.Names(), func(n string) bool { return n == "unit-adopted" }); !slices.Equal(got,
		slices.Delete(want, 2, 3)) {
		t.Errorf("the trail reads %q", got)
	}
}

func TestReadyComesAfterTheRepairAndBeforeAnyUnitIsAskedAbout(t *testing.T) {
	h := newHost(t)
	h.systemd.Start("reader.service")
	h.clock.Move(time.Minute)
	asked, repaired := 0, false
	h.systemd.Fail = func(string, string) error {
		asked++
		select {
		case <-h.report.IsReady():
		default:
			t.Error("a unit was asked about before READY=1")
		}
		return nil
	}
	h.start()
	h.publish(kubelet(caA))
	h.kill()
	h.disk.Delete(kubeletCA)
	h.disk.Fail = func(op, _ string) error {
		select {
		case <-h.report.IsReady():
			t.Errorf("READY=1 came before the %s", op)
		default:
			repaired = repaired || op == "rename"
		}
		return nil
	}
	h.start()
	h.kill()
	if asked == 0 || !repaired {
		t.Errorf("asked %d times about units, repaired: %v", asked, repaired)
	}
}

func TestAnUnchangedControllerConfigWritesNothingAndMovesNoContent(t *testing.T) {
	h := newHost(t)
	h.start()
	defer h.kill()
	h.publish(kubelet(caA), registry("r:5000", caB))
	commits, bytes := h.disk.Commits, h.disk.Bytes
	for range 3 {
		h.publish(kubelet(caA), registry("r:5000", caB))
	}
	if h.disk.Commits != commits || h.disk.Bytes != bytes {
		t.Errorf("%d commits and %d bytes more for an unchanged object", h.disk.Commits-commits, h.disk.Bytes-bytes)
	}
}

func TestWhatChangedIsWrittenBeforeTheRestIsLookedAt(t *testing.T) {
	h := newHost(t)
	h.start()
	defer h.kill()
	old := []plan.Entry{kubelet(caA), registry("a", caA), registry("b", caA), registry("gone", caA)}
	h.publish(old...)
	h.disk.Put(certsD+"b/ca.crt", "scribble")
	var order []string
	looks := h.disk.Looks
	h.disk.Fail = func(op, path string) error {
		if op == "rename" {
			order = append(order, fmt.Sprintf("%s after %d looks", path, h.disk.Looks-looks))
		}
		return nil
	}
	h.publish(kubelet(caA), registry("a", caB), registry("b", caA))
	if want := []string{certsD + "a/ca.crt after 1 looks", certsD + "b/ca.crt after 5 looks"}; !slices.Equal(order, want) {
		t.Errorf("written were %q, want %q", order, want)
	}
	h.wantFile(certsD+"a/ca.crt", caB)
	h.wantFile(certsD+"gone/ca.crt", "")
}

func TestConsumersReadAChangeBeforeTheAgentGoesOn(t *testing.T) {
	h := newHost(t)
	h.times.SettleDelay = time.Second
	h.systemd.Start("reader.service")
	h.clock.Move(time.Minute)
	h.start()
	defer h.kill()
	h.publish(kubelet(caA), registry("a", caA), registry("b", caA))
	looks, writes := h.disk.Looks, h.last.Writes

	h.turnOnly(func() { h.offer(kubelet(caB), registry("a", caA), registry("b", caA)) })
	h.wantFile(kubeletCA, caB)
	h.turnOnly(func() { h.watcher <- struct{}{} })
	h.clock.Move(900 * time.Millisecond)
	h.turnOnly(func() { h.offer(kubelet(caB), registry("a", caB), registry("b", caA)) })
	h.wantFile(certsD+"a/ca.crt", caB)
	if n := h.disk.Looks - looks; n != 2 {
		t.Errorf("%d files were looked at, want the changed ones alone", n)
	}

	// The second change does not put off the rest of the turn.
	if s := h.wait(100 * time.Millisecond); s.Writes != writes+2 {
		t.Errorf("%d files were written, want 2", s.Writes-writes)
	}
	h.wait(time.Second) // the unit's two seconds began with the first version
	h.settled()
	h.wantJobs("reload reader.service")
}

func TestWhatWasPublishedLastIsRememberedWhenTheAgentIsStoppedInASettleDelay(t *testing.T) {
	h := newHost(t)
	h.times.SettleDelay = time.Second
	h.start()
	h.publish(kubelet(caA), registry("a", caA))
	h.turnOnly(func() { h.offer(kubelet(caB), registry("a", caA)) })
	h.kill()
	h.disk.Delete(certsD + "a/ca.crt")
	h.start() // without an API server
	defer h.kill()
	h.wantFile(kubeletCA, caB)
	h.wantFile(certsD+"a/ca.crt", caA)
}

func TestWhatIsRememberedIsWhatItsDigestSays(t *testing.T) {
	h := newHost(t)
	h.times.SettleDelay = time.Second
	h.start()
	defer func() { h.kill() }()
	h.publish(kubelet(caA), registry("r", caA))
	h.kill()
	h.disk.Put(kubeletCA, caB+caA) // more than is remembered, as with something that is held
	s := h.start()
	if !slices.Equal(s.Fields, []plan.Field{plan.KubeAPIServerServingCAData, plan.ImageRegistryBundleData}) {
		t.Errorf("the host is said to take %v", s.Fields)
	}
	if s.Files[0].State != "in place" {
		t.Errorf("a file that has all that is remembered is %s", s.Files[0].State)
	}
	h.wantFile(kubeletCA, caB+caA)
	h.turnOnly(func() { h.offer(kubelet(caA), registry("r", caB)) })
	h.kill() // in the rest
	h.disk.Delete(kubeletCA)
	h.start() // and nobody to read the ControllerConfig from
	if got, _ := h.disk.Read(kubeletCA); !strings.Contains(got, caA) {
		t.Errorf("the file was not repaired: %q", got)
	}
	h.wantFile(certsD+"r/ca.crt", caB)
}

func TestAFastPathThatFailsIsRetriedFileByFile(t *testing.T) {
	h := newHost(t)
	h.start()
	defer h.kill()
	h.publish(kubelet(caA), registry("a", caA), registry("b", caA))
	h.disk.Fail = func(op, path string) error {
		if path == kubeletCA {
			return errors.New("read-only file system")
		}
		return nil
	}
	h.publish(kubelet(caB), registry("a", caB), registry("b", caA))
	h.wait(2 * time.Second)
	h.wantFile(kubeletCA, caA)
	h.wantFile(certsD+"a/ca.crt", caB)
	h.disk.Fail = func(string, string) error { return nil }
	h.wait(3 * time.Second)
	h.wantFile(kubeletCA, caB)
}

func TestDriftIsRepairedWithoutTheControllerConfig(t *testing.T) {
	h := newHost(t)
	h.start()
	defer h.kill()
	h.publish(kubelet(caA))
	h.disk.Put(kubeletCA, "scribble")
	h.watcher <- struct{}{}
	h.awaitReconcile()
	h.wantFile(kubeletCA, caA)
	h.disk.Delete(kubeletCA)
	h.watcher <- struct{}{}
	h.awaitReconcile()
	h.wantFile(kubeletCA, caA)
}

func TestKilledBetweenRenameAndReloadTheReloadStillHappensOnce(t *testing.T) {
	h := newHost(t)
	h.systemd.Start("reader.service")
	h.start()
	h.publish(kubelet(caA))
	h.wait(2 * time.Second)
	h.settled()
	h.clock.Move(time.Minute)
	h.publish(kubelet(caB)) // written, the reload waits for its two seconds
	h.kill()
	h.wantJobs("reload reader.service")
	h.start()
	defer h.kill()
	h.wait(2 * time.Second)
	h.settled()
	h.wantJobs("reload reader.service", "reload reader.service")
	h.publish(kubelet(caB))
	h.wantJobs("reload reader.service", "reload reader.service")
}

func TestKilledWhileAJobRunsTheActionIsRepeated(t *testing.T) {
	h := newHost(t)
	h.systemd.Start("reader.service")
	dying := make(chan struct{})
	h.systemd.Fail = func(op, _ string) error {
		if op == "reload" {
			close(dying)
			return errors.New("connection lost")
		}
		return nil
	}
	h.start()
	h.publish(kubelet(caA))
	h.clock.Move(2 * time.Second)
	h.awaitReconcile()
	<-dying
	h.kill()
	h.systemd.Fail = func(string, string) error { return nil }
	h.start()
	defer h.kill()
	h.wait(2 * time.Second)
	h.settled()
	h.wantJobs("reload reader.service")
}

func TestWithoutMemoryNothingIsRemovedAndNothingRestarted(t *testing.T) {
	h := newHost(t)
	h.policy.Units[0].Verb = unitplan.TryRestart
	h.start()
	h.publish(kubelet(caA), registry("old", caA), registry("new", caB))
	h.kill()
	h.clock.Move(time.Hour)
	h.systemd.Start("reader.service")
	*h.dir = *agenttest.NewDir()
	h.start()
	defer h.kill()
	h.publish(kubelet(caA), registry("new", caB))
	h.wantFile(certsD+"old/ca.crt", caA)
	h.wantJobs()
	if !slices.Contains(h.trail.Names(), "no-memory") {
		t.Error("the loss is not on record")
	}
}

func TestARegistryThatVanishedIsRemovedAndOthersStay(t *testing.T) {
	h := newHost(t)
	h.disk.Put(certsD+"foreign/ca.crt", "by hand")
	h.start()
	defer h.kill()
	h.publish(registry("a", caA), registry("b", caB))
	h.publish(registry("a", caA))
	h.wantFile(certsD+"a/ca.crt", caA)
	h.wantFile(certsD+"b/ca.crt", "")
	h.wantFile(certsD+"foreign/ca.crt", "by hand")
}

func TestAfterARestartWithoutAnAPIServerTheLastGoodStateIsRestored(t *testing.T) {
	h := newHost(t)
	h.start()
	h.publish(kubelet(caA), registry("r", caB))
	h.kill()
	h.disk.Delete(kubeletCA)
	s := h.start()
	defer h.kill()
	h.wantFile(kubeletCA, caA)
	if s.State != "starting" || len(s.Files) != 2 {
		t.Errorf("ready with state %q and %d files", s.State, len(s.Files))
	}
}

func TestAFailedCommitDispatchesNothingIsRetriedAndStagedAnew(t *testing.T) {
	h := newHost(t)
	h.systemd.Start("reader.service")
	h.start()
	defer h.kill()
	h.disk.Fail = func(op, _ string) error {
		if op == "commit" {
			return errors.New("fsync: input/output error")
		}
		return nil
	}
	s := h.publish(kubelet(caA))
	if !strings.Contains(s.Error, "input/output error") || s.Files[0].State != "pending" {
		t.Errorf("status says %q, file %q", s.Error, s.Files[0].State)
	}
	h.elapse(time.Second + 100*time.Millisecond)
	h.elapse(10 * time.Second) // far longer than an action waits for company
	h.wantJobs()
	h.disk.Fail = func(string, string) error { return nil }
	h.elapse(time.Minute)
	s = h.last
	if s.Error != "" || s.Files[0].State != "in place" || h.disk.Commits != 1 {
		t.Errorf("after the retry: trouble %q, file %q, %d commits", s.Error, s.Files[0].State, h.disk.Commits)
	}
	h.wait(2 * time.Second)
	h.settled()
	h.wantJobs("reload reader.service")
}

func TestEventsDoNotPutARetryOff(t *testing.T) {
	h := newHost(t)
	h.start()
	defer h.kill()
	broken := true
	h.disk.Fail = func(op, _ string) error {
		if op == "commit" && broken {
			return errors.New("read-only file system")
		}
		return nil
	}
	h.publish(kubelet(caA))
	for range 10 {
		h.elapse(10 * time.Millisecond)
	}
	broken = false
	if s := h.wait(time.Second); s.Error != "" {
		t.Errorf("the repair was not noticed: %s", s.Error)
	}
	h.wantFile(kubeletCA, caA)
}

func TestADirectoryThatCannotBeWrittenDoesNotKeepTrustFromTheOthers(t *testing.T) {
	h := newHost(t)
	h.start()
	defer h.kill()
	h.disk.Fail = func(op, path string) error {
		if op == "stage" && strings.HasPrefix(path, certsD) {
			return errors.New("read-only file system")
		}
		return nil
	}
	h.publish(kubelet(caA), registry("r", caB))
	s := h.wait(time.Second + 100*time.Millisecond)
	h.wantFile(kubeletCA, caA)
	h.wantFile(certsD+"r/ca.crt", "")
	if !strings.Contains(s.Error, "read-only") {
		t.Errorf("trouble is %q", s.Error)
	}
}

func TestAFieldThatCannotBeWrittenKeepsOnlyItsOwnUnitsWaiting(t *testing.T) {
	h := newHost(t)
	h.policy.Files[1].OnChange = []string{"runtime.service"}
	h.policy.Units = append(h.policy.Units, unitplan.Unit{Name: "runtime.service", Verb: unitplan.Reload})
	h.systemd.Start("reader.service")
	h.systemd.Start("runtime.service")
	h.start()
	defer h.kill()
	broken, ends := true, false
	var order []string
	h.disk.Fail = func(op, path string) error {
		switch {
		case ends: // what comes right after meets a writer that ends
			ends = false
			return errors.New("writer unavailable")
		case op == "stage":
			order = append(order, path)
			ends = broken && strings.HasPrefix(path, certsD)
		}
		if ends {
			return errors.New("read-only file system")
		}
		return nil
	}
	h.publish(kubelet(caA), registry("r", caB))
	for range 3 { // tries, file by file
		h.elapse(4 * time.Second)
	}
	h.wantJobs("reload reader.service")
	for _, next := range []string{caB, caA, caB} {
		order = nil
		h.publish(kubelet(next), registry("r", caB)) // at once, and before the field that fails
		h.wantFile(kubeletCA, next)
		if len(order) == 0 || order[0] != kubeletCA {
			t.Errorf("staged %q", order)
		}
		h.elapse(2 * time.Second)
	}
	if s := h.unit("reader.service"); s.State != "up to date" || h.last.Error == "" {
		t.Errorf("beside a field that fails: %+v, trouble %q", s, h.last.Error)
	}
	h.wantJobs("reload reader.service", "reload reader.service", "reload reader.service", "reload reader.service")
	broken = false
	h.elapse(2 * time.Minute)
	h.until("runtime.service", "up to date", time.Second, 10*time.Second)
	if h.last.Error != "" {
		t.Errorf("trouble %q", h.last.Error)
	}
}

func TestAFailedActionStaysPendingAndIsRetriedLater(t *testing.T) {
	h := newHost(t)
	h.systemd.Start("reader.service")
	fail := true
	h.systemd.Fail = func(op, _ string) error {
		if op == "reload" && fail {
			return errors.New("job failed")
		}
		return nil
	}
	h.start()
	defer h.kill()
	h.publish(kubelet(caA))
	h.wait(2 * time.Second)
	if s := h.settled(); s.Units[0].State != "failed" || s.Actions.Failed != 1 {
		t.Errorf("after the failure: %+v", s.Units[0])
	}
	fail = false
	h.wait(time.Second + 100*time.Millisecond)
	if s := h.settled(); s.Units[0].State != "up to date" || s.Actions.Succeeded != 1 {
		t.Errorf("after the retry: %+v", s.Units[0])
	}
}

func TestMemoryThatCannotBeSavedHoldsBackWhatNeedsAClaimAndNoAction(t *testing.T) {
	h := newHost(t)
	h.systemd.Start("reader.service")
	h.start()
	defer h.kill()
	h.dir.Fail = func(op, name string) error {
		if op == "write" && name == "state.json" {
			return errors.New("no space left on device")
		}
		return nil
	}
	h.publish(registry("r", caA))
	h.wantFile(certsD+"r/ca.crt", "") // unclaimed, it could never be removed
	h.publish(kubelet(caA))
	h.wantFile(kubeletCA, caA) // this field needs no claim: trust grows although memory is full
	h.until("reader.service", "up to date", time.Second, 10*time.Second)
	h.wantJobs("reload reader.service")
}

func TestARefusalIsRecordedOnceAndTheOtherFieldsGoOn(t *testing.T) {
	h := newHost(t)
	h.start()
	defer h.kill()
	refused := plan.Refusal{Key: plan.Key{Field: plan.KubeAPIServerServingCAData}, Reason: "holds a private key"}
	for range 2 {
		h.source <- desired.Reading{State: "following", Desired: &plan.Desired{Verified: true,
			Entries: []plan.Entry{registry("r", caA)}, Refused: []plan.Refusal{refused}}}
		h.awaitReconcile()
	}
	h.wantFile(certsD+"r/ca.crt", caA)
	if n := len(slices.DeleteFunc(h.trail.Names(), func(n string) bool { return n != "refused" })); n != 1 ||
		len(h.last.Refused) != 1 {
		t.Errorf("recorded %d times, status %v", n, h.last.Refused)
	}
}

func TestAControllerConfigThatIsGoneLeavesEverythingInPlace(t *testing.T) {
	h := newHost(t)
	h.start()
	defer h.kill()
	h.publish(kubelet(caA))
	h.source <- desired.Reading{State: "not found", Reason: "deleted"}
	if s := h.awaitReconcile(); s.State != "not found" || len(s.Files) != 1 {
		t.Errorf("status is %q with %d files", s.State, len(s.Files))
	}
	h.wantFile(kubeletCA, caA)
}
