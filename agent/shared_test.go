// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/agenttest"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// Both registry lists name the same files, in every profile: whatever is decided about a file must not
// depend on which of them asks for it.

// sharing is a host on which both lists have a file for r, and a unit reads what they name.
func sharing(t *testing.T, hold time.Duration) *host {
	h := newHost(t)
	h.policy.Trust.Hold = hold
	other := h.policy.Files[1]
	other.Field = plan.ImageRegistryBundleUserData
	h.policy.Files = append(h.policy.Files, other)
	for i := range h.policy.Files {
		h.policy.Files[i].OnChange = []string{"reader.service"}
	}
	h.disk = agenttest.NewDisk(h.policy.Policy, h.clock)
	return h
}

func user(name, data string) plan.Entry {
	e := registry(name, data)
	e.Field = plan.ImageRegistryBundleUserData
	return e
}

const sharedFile = certsD + "r/ca.crt"

func TestWhatTheOtherListPublishesIsNotMissing(t *testing.T) {
	h := sharing(t, time.Hour)
	h.start()
	defer h.kill()
	h.publish(registry("r", caA+caB), user("s", caA))
	h.publish(registry("r", caB), user("s", caA)) // A is held
	h.publish(user("r", caA), registry("s", caA))
	h.elapse(5 * time.Hour)
	h.publish(registry("r", caB), user("s", caA))
	h.wantFile(sharedFile, caB+caA)
	h.elapse(59 * time.Minute)
	h.publish(registry("r", caB), user("s", caA))
	h.wantFile(sharedFile, caB+caA)
	h.elapse(time.Minute)
	h.wantFile(sharedFile, caB)
}

func TestAHoldEndsWithItsFile(t *testing.T) {
	h := sharing(t, time.Hour)
	h.start()
	defer h.kill()
	h.publish(registry("r", caA+caB), registry("s", caA))
	h.publish(registry("r", caB), registry("s", caA)) // A is held
	h.publish(registry("s", caA))                     // and so is the file
	h.elapse(time.Hour)
	h.wantFile(sharedFile, "")
	h.elapse(time.Hour)
	h.disk.Put(sharedFile, caA+caB) // by hand
	h.publish(registry("r", caB), registry("s", caA))
	h.wantFile(sharedFile, caB+caA)
}

func TestARegistryThatMovedToTheOtherListIsStillOurs(t *testing.T) {
	h := sharing(t, 0)
	h.systemd.Start("reader.service")
	h.clock.Move(time.Minute)
	h.start()
	defer func() { h.kill() }()
	h.publish(registry("r", caA), user("s", caA))
	h.elapse(time.Minute)
	commits, jobs := h.disk.Commits, h.systemd.Done()
	h.publish(registry("s", caA), user("r", caA))
	h.elapse(time.Minute)
	if h.disk.Commits != commits {
		t.Errorf("%d commits for files that are as they were", h.disk.Commits-commits)
	}
	h.wantJobs(jobs...)
	h.kill()
	h.start()
	h.publish(registry("s", caA), user("t", caA))
	h.wantFile(sharedFile, "")
}

func TestARegistryThatMovedAndIsRefusedKeepsItsFile(t *testing.T) {
	h := sharing(t, 0)
	h.start()
	defer h.kill()
	h.publish(user("r", caA), user("s", caA), registry("t", caA))
	h.ask(plan.Desired{Entries: []plan.Entry{user("s", caA), registry("t", caA)},
		Refused: []plan.Refusal{{Key: registry("r", caA).Key, Reason: "is cut off"}}})
	h.wantFile(sharedFile, caA)
	h.disk.Delete(sharedFile)
	h.turn()
	h.wantFile(sharedFile, caA)
	h.publish(user("s", caA), registry("t", caA))
	h.wantFile(sharedFile, "")
}

// TestAClaimOnAFormerPathHidesNoFile: the files' place in the table was changed, and both the old file and the new
// one were claimed, by different lists.
func TestAClaimOnAFormerPathHidesNoFile(t *testing.T) {
	for range 20 { // claims have no order
		h := sharing(t, 0)
		h.start()
		h.publish(user("r", caA), registry("s", caA))
		h.kill()
		for i := range h.policy.Files[1:] {
			h.policy.Files[1+i].Path = "/srv/{name}/ca.crt"
		}
		h.disk = agenttest.NewDisk(h.policy.Policy, h.clock)
		h.disk.Put(sharedFile, caA)
		h.start()
		h.publish(registry("r", caA), user("s", caA))
		h.wantFile("/srv/r/ca.crt", caA)
		if s := h.publish(registry("t", caA), user("s", caA)); s.Error != "" {
			t.Error(s.Error)
		}
		h.wantFile("/srv/r/ca.crt", "")
		h.wantFile(sharedFile, caA)
		h.kill()
	}
}

func TestAFileStaysWhileTheOtherListMayNameIt(t *testing.T) {
	h := sharing(t, 0)
	h.start()
	defer h.kill()
	h.publish(user("r", caA), user("s", caA), registry("t", caA))
	h.ask(plan.Desired{Entries: []plan.Entry{user("s", caA)},
		Refused: []plan.Refusal{{Key: plan.Key{Field: plan.ImageRegistryBundleData}, Reason: "entry 1 has no name"}}})
	h.wantFile(sharedFile, caA)
	h.publish(user("s", caA), registry("t", caA))
	h.wantFile(sharedFile, "")
}

func TestAFileThatMovedToTheOtherListInASettleDelayIsRememberedOnce(t *testing.T) {
	h := sharing(t, 0)
	h.start()
	h.publish(registry("r", caA), user("s", caA))
	h.times.SettleDelay = time.Second
	h.kill()
	h.start()
	h.publish(registry("r", caA), user("s", caA))
	h.turnOnly(func() { h.offer(user("r", caA+caB), user("s", caA)) })
	h.wantFile(sharedFile, caA+caB)
	h.kill() // in the rest
	h.disk.Delete(sharedFile)
	h.start()
	defer func() { h.kill() }()
	h.wantFile(sharedFile, caA+caB)
}

// TestAFileThatTheOtherListWritesIsOneFile: what a unit has loaded must not depend on which of the two keys of a path
// comes first.
func TestAFileThatTheOtherListWritesIsOneFile(t *testing.T) {
	for range 10 {
		h := sharing(t, 0)
		has := ""
		h.systemd.Load = func(string) { has, _ = h.disk.Read(sharedFile) }
		h.systemd.Start("reader.service")
		h.start()
		h.publish(kubelet(caA), registry("r", caA))
		h.until("reader.service", "up to date", time.Second, 10*time.Second)
		h.elapse(time.Minute)
		h.disk.Put(sharedFile, caB)
		has = caB // systemctl reload leaves no trace
		h.publish(kubelet(caA), user("r", caA))
		h.elapse(10 * time.Second)
		h.elapse(10 * time.Second)
		if file, _ := h.disk.Read(sharedFile); h.unit("reader.service").State != "up to date" || has != file {
			t.Errorf("the unit has %.20q, and the file %.20q; it is %+v", has, file, h.unit("reader.service"))
		}
		h.kill()
	}
}

// TestAJobIsDoneAlthoughTheOtherListAsksForAFileMeanwhile: nobody touched the file that the unit read. Found by the
// simulator.
func TestAJobIsDoneAlthoughTheOtherListAsksForAFileMeanwhile(t *testing.T) {
	h := sharing(t, 0)
	h.systemd.Start("reader.service")
	begun, ends := make(chan struct{}), make(chan struct{})
	h.systemd.Hold = func(string) { begun <- struct{}{}; <-ends }
	h.start()
	defer h.kill()
	h.publish(registry("r", caA), registry("s", caB), user("t", caA))
	h.lapse(10 * time.Second)
	<-begun
	h.publish(registry("s", caB), user("r", caA), user("t", caA))
	h.systemd.Hold = func(string) {}
	close(ends)
	h.until("reader.service", "up to date", time.Second, time.Minute)
	h.wantJobs("reload reader.service")
}
