// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/desired"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// What the writer before us did and this one does not; the table is
// docs/decisions/0012-defects-of-the-writer.md.

func TestANodeThatWasOffDuringAChangeIsBroughtUpToDate(t *testing.T) {
	h := newHost(t)
	h.start()
	h.publish(kubelet(caA), registry("r:5000", caA))
	h.kill()
	// The ControllerConfig becomes B here, and nobody will say so again: the next reading is as old as its last.
	h.clock.Move(time.Hour)
	h.start()
	defer h.kill()
	h.ask(plan.Desired{Verified: true, ControllerConfig: plan.ControllerConfig{ResourceVersion: "1"},
		Entries: []plan.Entry{kubelet(caB), registry("r:5000", caB)}})
	h.wantFile(kubeletCA, caB)
	h.wantFile(certsD+"r:5000/ca.crt", caB)
}

func TestADifferenceThatNobodyAnnouncedIsFoundAtTheNextLook(t *testing.T) {
	h := newHost(t)
	h.start()
	defer h.kill()
	h.publish(kubelet(caA), registry("r:5000", caA))
	h.disk.Put(kubeletCA, caB)
	h.disk.Delete(certsD + "r:5000/ca.crt")
	h.wait(time.Hour + 6*time.Minute)
	h.wantFile(kubeletCA, caA)
	h.wantFile(certsD+"r:5000/ca.crt", caA)
}

func TestNothingIsCalledDoneBeforeItIs(t *testing.T) {
	h := newHost(t)
	h.systemd.Start("reader.service")
	h.clock.Move(time.Minute)
	h.start()
	defer h.kill()
	h.publish(kubelet(caA))
	h.wait(2 * time.Second)
	synced := h.settled().Synced
	h.clock.Move(time.Minute)
	h.disk.Fail = func(op, _ string) error {
		if op == "rename" {
			return errors.New("read-only file system")
		}
		return nil
	}
	if s := h.publish(kubelet(caB)); !s.Synced.Equal(synced) || s.Error == "" || s.Files[0].State != "pending" {
		t.Errorf("nothing was written, and the status says %+v", s)
	}
	h.disk.Fail = func(string, string) error { return nil }
	if s := h.wait(2 * time.Second); !s.Synced.After(synced) || s.Files[0].State != "in place" ||
		s.Units[0].State != "pending" {
		t.Errorf("written and not reloaded, and the status says %+v", s)
	}
	h.wait(2 * time.Second)
	if s := h.settled(); s.Units[0].State != "up to date" {
		t.Errorf("after the reload the unit is %q", s.Units[0].State)
	}
}

func TestAFileThatWeDidNotWriteIsNeverRemoved(t *testing.T) {
	h := newHost(t)
	h.start()
	defer h.kill()
	theirs := []string{certsD + "theirs/ca.crt", certsD + "r:5000/client.key", certsD + "theirs:5000/client.cert"}
	for _, path := range theirs {
		h.disk.Put(path, "theirs")
	}
	h.publish(kubelet(caA), registry("r:5000", caA), registry("s", caA))
	h.publish(kubelet(caA), registry("s", caA))
	h.wantFile(certsD+"r:5000/ca.crt", "")
	for _, path := range theirs {
		h.wantFile(path, "theirs")
	}
}

func TestARegistryWithAPortIsLeftAloneWhenOthersChange(t *testing.T) {
	h := newHost(t)
	h.start()
	defer h.kill()
	h.publish(registry("r:5000", caA), registry("s", caA))
	touched := func(op, path string) error {
		if path == certsD+"r:5000/ca.crt" {
			t.Errorf("%s of %s", op, path)
		}
		return nil
	}
	h.disk.Fail = touched
	for _, ca := range []string{caB, caA, caB} {
		h.publish(registry("r:5000", caA), registry("s", ca))
	}
	h.wantFile(certsD+"s/ca.crt", caB)
	h.wantFile(certsD+"r:5000/ca.crt", caA)
}

func TestTheNameInACertificateDecidesNothing(t *testing.T) {
	for _, cn := range []string{"kube-apiserver-localhost-signer", "localhost-recovery-serving-signer",
		"kube-apiserver-lb-signer", "anything"} {
		h := newHost(t)
		h.systemd.Start("reader.service")
		h.start()
		h.publish(kubelet(caA))
		h.wait(2 * time.Second)
		h.settled()
		h.clock.Move(time.Minute)
		h.publish(kubelet(caA + string(testpki.NewCA(cn))))
		h.wait(2 * time.Second)
		h.settled()
		h.wantJobs("reload reader.service", "reload reader.service")
		h.kill()
	}
}

func TestAnErrorEndsWithTheFirstReconcileThatSucceeds(t *testing.T) {
	h := newHost(t)
	h.start()
	defer h.kill()
	h.disk.Fail = func(op, _ string) error { return errors.New("no writer") }
	h.publish(kubelet(caA))
	for range 12 {
		// However often it failed, the next try is never more than RetryMax, and a tenth, away.
		if s := h.wait(66 * time.Second); s.Error == "" {
			t.Fatal("no trouble")
		}
	}
	h.disk.Fail = func(string, string) error { return nil }
	if s := h.wait(66 * time.Second); s.Error != "" || s.State != "following" {
		t.Errorf("the status still says %q, %q", s.State, s.Error)
	}
	h.wantFile(kubeletCA, caA)
	if n := len(slices.DeleteFunc(h.trail.Names(), func(n string) bool { return n != "error" })); n != 1 {
		t.Errorf("%d records of one trouble", n)
	}
}

func TestNoErrorOfTheAPIServerTakesAFileAway(t *testing.T) {
	h := newHost(t)
	h.start()
	defer h.kill()
	h.publish(kubelet(caA), registry("r:5000", caA))
	commits := h.disk.Commits
	for _, reason := range []string{"x509: certificate signed by unknown authority", "401 Unauthorized",
		"connection refused"} {
		h.source <- desired.Reading{State: "unreachable", Reason: reason}
		if s := h.awaitReconcile(); s.Reason != reason || len(s.Files) != 2 {
			t.Errorf("the status says %+v", s)
		}
	}
	h.wantFile(kubeletCA, caA)
	h.wantFile(certsD+"r:5000/ca.crt", caA)
	if h.disk.Commits != commits {
		t.Errorf("%d commits", h.disk.Commits-commits)
	}
}

// failing has one operation of the disk fail from now on.
func (h *host) failing(operation string) {
	h.disk.Fail = func(op, _ string) error {
		if op == operation {
			return errors.New("input/output error")
		}
		return nil
	}
}

func TestACommitThatChangedNothingLeavesNoDoubt(t *testing.T) {
	h := newHost(t)
	h.start()
	defer h.kill()
	h.publish(kubelet(caA), registry("s", caA))
	commits := h.disk.Commits
	h.failing("stage")
	if s := h.publish(kubelet(caB), registry("s", caA)); s.Error == "" {
		t.Error("no trouble")
	}
	if s := h.publish(kubelet(caA), registry("s", caA)); s.Error != "" || s.Files[0].State != "in place" {
		t.Errorf("the ControllerConfig asks for what is there, and the status says %+v", s)
	}
	h.failing("none")
	if h.turn(); h.disk.Commits != commits {
		t.Errorf("%d commits for what is there", h.disk.Commits-commits)
	}
}

func TestWhatOthersWroteWhileOursFailedIsTheirs(t *testing.T) {
	for _, until := range []string{"the ControllerConfig drops it",
		"the directory can be written again, and then the ControllerConfig drops it"} {
		h := newHost(t)
		h.start()
		h.publish(registry("s", caA))
		h.failing("stage")
		h.publish(registry("r", caA), registry("s", caA))
		h.disk.Put(certsD+"r/ca.crt", caA)
		h.publish(registry("r", caA), registry("s", caA))
		h.failing("none")
		if until != "the ControllerConfig drops it" {
			h.publish(registry("r", caA), registry("s", caA))
		}
		h.publish(registry("s", caA))
		h.wantFile(certsD+"r/ca.crt", caA)
		h.kill()
	}
}

// TestWhoeverWroteAFileOfWhichThatIsNotKnown: the bytes are those that we were about to write. They are
// written again, and are ours from then on.
func TestWhoeverWroteAFileOfWhichThatIsNotKnown(t *testing.T) {
	for _, how := range []string{"the commit stopped half way", "the agent was killed before it"} {
		h := newHost(t)
		h.start()
		h.publish(registry("s", caA))
		h.failing("rename")
		h.offer(registry("r", caA), registry("s", caA))
		h.awaitReconcile()
		if how == "the agent was killed before it" {
			h.kill()
			h.start()
		}
		h.disk.Put(certsD+"r/ca.crt", caA)
		h.failing("none")
		h.publish(registry("r", caA), registry("s", caA))
		if got := h.trail.Names(); !slices.Contains(got, "written") {
			t.Errorf("%s: the trail reads %q", how, got)
		}
		commits := h.disk.Commits
		if h.turn(); h.disk.Commits != commits {
			t.Errorf("%s: it is written again and again", how)
		}
		h.publish(registry("s", caA))
		h.wantFile(certsD+"r/ca.crt", "")
		h.kill()
	}
}

func TestARemovalIsOverWhenItIsDurable(t *testing.T) {
	for _, how := range []string{"the agent goes on", "the agent is killed"} {
		h := newHost(t)
		h.policy.Trust.Hold = time.Minute
		h.start()
		h.publish(registry("r", caA), registry("s", caA))
		h.publish(registry("s", caA))
		h.failing("commit") // of the directory, after the file is gone
		h.elapse(time.Minute)
		h.wantFile(certsD+"r/ca.crt", "")
		if how == "the agent is killed" {
			h.kill()
			h.start()
		}
		h.failing("none")
		h.publish(registry("s", caA))
		if h.disk.Commits != 2 {
			t.Errorf("%s: the removal was not carried out again", how)
		}
		h.turn()
		if h.disk.Commits != 2 {
			t.Errorf("%s: the removal is carried out again and again", how)
		}
		h.kill()
	}
}

func TestAFileThatNobodyRemembersIsStillLookedAt(t *testing.T) {
	h := newHost(t)
	h.systemd.Start("reader.service")
	h.clock.Move(time.Minute)
	h.start()
	h.publish(registry("s", caA))
	h.elapse(time.Minute)
	h.dir.Fail = func(op, name string) error {
		if op == "write" && strings.HasPrefix(name, "blobs/") {
			return errors.New("killed")
		}
		return nil
	}
	h.publish(kubelet(caB), registry("s", caA))
	h.wantFile(kubeletCA, caB)
	h.kill()
	h.dir.Fail = noFailure
	h.start() // and nobody to read the ControllerConfig from
	defer h.kill()
	h.elapse(time.Minute)
	h.wantJobs("reload reader.service")
}

func TestWhatOnlyAnOperatorPutThereIsStillLookedAt(t *testing.T) {
	h := newHost(t)
	h.systemd.Start("reader.service")
	h.clock.Move(time.Minute)
	h.start()
	defer h.kill()
	h.publish(registry("s", caA))
	h.apply("1", kubelet(caA))
	h.elapse(time.Minute)
	h.wantJobs("reload reader.service")
	if s := h.publish(registry("s", caB)); s.Override.State != "overtaken by the ControllerConfig" {
		t.Errorf("the status says %+v", s.Override)
	}
	h.elapse(time.Minute)
	h.wantJobs("reload reader.service")
	h.disk.Put(kubeletCA, caB)
	h.turn()
	h.elapse(time.Minute)
	h.wantJobs("reload reader.service", "reload reader.service")
}

// A writer that is killed in each of its commits leaves as many files beside managed ones, in directories that
// others read as a whole.
func TestAfterACommitWithoutAnAnswerWhatItLeftIsSwept(t *testing.T) {
	h := newHost(t)
	h.start()
	defer h.kill()
	h.publish(kubelet(caA))
	sweeps, failing := 0, "rename"
	h.disk.Fail = func(op, _ string) error {
		if op == "sweep" {
			sweeps++
		}
		if op == failing || op == "sweep" && sweeps == 1 {
			return errors.New("it closed the connection without an answer")
		}
		return nil
	}
	h.publish(kubelet(caB))
	if h.turn(); sweeps != 1 {
		t.Errorf("%d sweeps before the second commit, want 1", sweeps)
	}
	if h.turn(); sweeps != 2 {
		t.Errorf("%d sweeps before the third commit, want 2", sweeps)
	}
	failing = "none"
	h.turn()
	h.wantFile(kubeletCA, caB)
	if h.turn(); sweeps != 3 {
		t.Errorf("%d sweeps, want one after each of three commits", sweeps)
	}
	failing = "stage"
	h.publish(kubelet(caA))
	if h.turn(); sweeps != 3 {
		t.Error("swept after a commit that said that it had changed nothing")
	}
}

func TestNobodyWaitsForAFileThatIsNotAskedForAnyMore(t *testing.T) {
	h := newHost(t)
	h.policy.Files[1].OnChange = []string{"reader.service"}
	h.systemd.Start("reader.service")
	h.clock.Move(time.Minute)
	h.start()
	defer h.kill()
	h.publish(registry("r", caA), registry("s", caA))
	h.elapse(time.Minute)
	h.failing("commit")
	h.publish(registry("r", caB), registry("s", caA))
	h.failing("none")
	h.disk.Put(certsD+"r/ca.crt", caA+caB) // which nobody removes now
	h.publish(registry("s", caA))
	h.elapse(time.Minute)
	h.elapse(time.Minute)
	if u := h.last.Units[0]; u.State != "up to date" {
		t.Errorf("the unit is %s: %s", u.State, u.Reason)
	}
}

// One field may fail for as long as it likes: what the others got, and lost, is remembered all the same.
func TestWhatWasPublishedBesideAFieldThatFailsIsRemembered(t *testing.T) {
	h := newHost(t)
	h.start()
	defer func() { h.kill() }()
	h.publish(kubelet(caA+caB), registry("s", caA))
	h.disk.Fail = func(op, path string) error {
		if op == "stage" && path == certsD+"s/ca.crt" {
			return errors.New("read-only file system")
		}
		return nil
	}
	h.publish(kubelet(caB), registry("s", caB))
	h.wait(2 * time.Second) // file by file
	h.wantFile(kubeletCA, caB)
	h.kill()
	h.disk.Fail = noFailure
	h.start() // and nobody to read the ControllerConfig from
	h.wantFile(kubeletCA, caB)
}

func TestTheLastGoodContentOfAFileThatIsInTheWayIsNotForgotten(t *testing.T) {
	h := newHost(t)
	h.start()
	defer func() { h.kill() }()
	h.publish(kubelet(caA), registry("s", caA))
	h.disk.Obstruct(kubeletCA, plan.Irregular)
	h.publish(kubelet(caB), registry("s", caB))
	h.kill()
	h.disk.Obstruct(kubeletCA, plan.Absent)
	h.disk.Delete(kubeletCA)
	h.start() // and nobody to read the ControllerConfig from
	h.wantFile(kubeletCA, caB)
}

// A directory may be read-only for as long as it likes. Each try to remove a file there is a commit, and a commit that
// changed nothing is no reason to load anything again. Found by the simulator.
func TestAFileThatCannotBeRemovedCausesNoActionAgainAndAgain(t *testing.T) {
	h := newHost(t)
	h.policy.Files[1].OnChange = []string{"reader.service"}
	h.systemd.Start("reader.service")
	h.clock.Move(time.Minute)
	h.start()
	defer h.kill()
	h.publish(kubelet(caA), registry("r", caA), registry("s", caA))
	h.elapse(2 * time.Second)
	h.failing("remove")
	h.publish(kubelet(caB), registry("s", caA))
	for range 20 {
		h.elapse(10 * time.Second)
	}
	h.wantFile(certsD+"r/ca.crt", caA)
	h.wantJobs("reload reader.service", "reload reader.service")
}
