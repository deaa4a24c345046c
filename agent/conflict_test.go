// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"errors"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// A conflict begins with this many repairs within this time: docs/usage/operating.md.
const (
	conflictAfter  = 3
	conflictMemory = 10 * time.Minute
)

// drifted says that somebody touched the files, and waits for the reconcile.
func (h *host) drifted() {
	h.t.Helper()
	h.watcher <- struct{}{}
	h.awaitReconcile()
}

func TestWhoKeepsChangingAFileIsReportedAndAnsweredOnceAMinute(t *testing.T) {
	h := newHost(t)
	h.start()
	defer h.kill()
	h.publish(kubelet(caA), registry("r", caA))
	for range conflictAfter {
		h.clock.Move(time.Second)
		h.disk.Put(kubeletCA, "scribble")
		h.drifted()
		h.wantFile(kubeletCA, caA)
	}
	if len(h.last.Conflicts) != 1 || h.last.Conflicts[0].Path != kubeletCA {
		t.Errorf("the status tells of %+v", h.last.Conflicts)
	}
	synced := h.last.Synced
	for range 3 {
		for range 5 {
			h.clock.Move(2 * time.Second)
			h.disk.Put(kubeletCA, "scribble again")
			h.drifted()
			h.wantFile(kubeletCA, "scribble again")
		}
		if h.last.Error != "" || !h.last.Synced.Equal(synced) || h.last.Files[0].State != "pending" {
			t.Errorf("while the file is not in order the status says %+v", h.last)
		}
		h.disk.Put(certsD+"r/ca.crt", "scribble") // somebody else's file is answered all the same
		h.clock.Move(time.Second)
		h.wait(time.Minute)
		h.wantFile(kubeletCA, caA)
		h.wantFile(certsD+"r/ca.crt", caA)
		synced = h.last.Synced
	}
	if n := h.recorded("conflict"); n == 0 || n > 4 {
		t.Errorf("%d records of the conflict", n)
	}
	h.elapse(conflictMemory)
	if len(h.last.Conflicts) > 0 {
		t.Errorf("it is over, and the status tells of %+v", h.last.Conflicts)
	}
}

func TestAChangeOfTheControllerConfigIsNeverPutOff(t *testing.T) {
	h := newHost(t)
	h.start()
	defer h.kill()
	h.publish(kubelet(caA))
	for range conflictAfter + 1 {
		h.disk.Put(kubeletCA, "scribble")
		h.drifted()
	}
	h.wantFile(kubeletCA, "scribble")
	h.publish(kubelet(caA + caB))
	h.wantFile(kubeletCA, caA+caB)
}

func TestOrdinaryDriftIsNoConflict(t *testing.T) {
	h := newHost(t)
	h.start()
	defer h.kill()
	h.publish(kubelet(caA))
	for range 6 {
		h.disk.Delete(kubeletCA)
		h.drifted()
		h.wantFile(kubeletCA, caA)
		h.elapse(5 * time.Minute)
	}
	if n := h.recorded("conflict"); n > 0 || len(h.last.Conflicts) > 0 {
		t.Errorf("%d records of a conflict", n)
	}
}

func TestOurOwnFailuresAreNoConflict(t *testing.T) {
	h := newHost(t)
	h.start()
	defer h.kill()
	h.publish(kubelet(caA))
	h.disk.Fail = func(op, _ string) error {
		if op == "commit" {
			return errors.New("fsync failed")
		}
		return nil
	}
	h.disk.Put(kubeletCA, "scribble")
	h.drifted()
	for range 6 {
		h.wait(66 * time.Second)
	}
	h.disk.Fail = func(string, string) error { return nil }
	h.wait(66 * time.Second)
	h.wantFile(kubeletCA, caA)
	if len(h.last.Conflicts) > 0 || h.last.Error != "" {
		t.Errorf("the status says %+v", h.last)
	}
}

func TestBesideAKnownWriterAChangeHalfDoneIsLeftToIt(t *testing.T) {
	h := newHost(t)
	for i, r := range h.policy.Files {
		h.policy.Files[i] = r.With([]plan.Writer{plan.MachineConfigDaemon, plan.NodeCA})
	}
	h.start()
	defer h.kill()
	h.publish(registry("r:5000", caA))
	commits := h.disk.Commits
	for range 10 {
		h.disk.Delete(certsD + "r:5000/ca.crt")
		h.drifted()
		h.disk.Put(certsD+"r:5000/ca.crt", caA)
		h.drifted()
	}
	if h.disk.Commits != commits || h.recorded("conflict") > 0 {
		t.Errorf("%d commits for what they finished by themselves", h.disk.Commits-commits)
	}
	h.disk.Delete(certsD + "r:5000/ca.crt")
	h.drifted()
	h.wait(2 * time.Second)
	h.wantFile(certsD+"r:5000/ca.crt", caA)
}

func TestAHoldThatEndsDuringAnErrorDoesNotHurryTheRetries(t *testing.T) {
	h := newHost(t)
	h.policy.Trust.Hold = time.Hour
	h.start()
	defer h.kill()
	h.publish(kubelet(caA))
	h.publish(kubelet(caB))
	h.disk.Fail = func(op, _ string) error {
		if op == "observe" {
			return errors.New("no writer")
		}
		return nil
	}
	h.wait(time.Hour)
	for range 20 {
		select {
		case h.watcher <- struct{}{}:
			h.awaitReconcile()
		case <-h.report.Statuses:
			t.Fatal("a reconcile that nothing asked for and no time has come for")
		}
	}
}
