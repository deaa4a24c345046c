// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/agenttest"
)

func TestDirectoriesThatCouldNotBeWatchedAreTriedAgain(t *testing.T) {
	h := newHost(t)
	h.watched.err = errors.New("no space left on device")
	h.start()
	defer h.kill()
	h.publish(kubelet(caA))
	h.watched.err = nil
	h.turn()
	if !slices.Contains(h.watched.directories, "/etc/kubernetes") {
		t.Errorf("watched are %q", h.watched.directories)
	}
	sets := h.watched.sets
	if h.turn(); h.watched.sets != sets {
		t.Errorf("they are set %d times more without need", h.watched.sets-sets)
	}
}

// What is watched may have been replaced, or mounted over, and nothing tells.
func TestDirectoriesAreWatchedAnewAtEachResync(t *testing.T) {
	h := newHost(t)
	h.start()
	defer h.kill()
	h.publish(kubelet(caA))
	sets := h.watched.sets
	if h.wait(time.Hour + 6*time.Minute); h.watched.sets != sets+1 {
		t.Errorf("they were set %d times at the resync", h.watched.sets-sets)
	}
}

func TestWhatALinkLeadsToAndWhatIsHeldIsWatched(t *testing.T) {
	h := newHost(t)
	h.policy.Trust.Hold, h.policy.Files[0].FollowLink = time.Hour, true
	h.disk = agenttest.NewDisk(h.policy.Policy, h.clock)
	h.disk.Link(kubeletCA, "/srv/ca.crt")
	h.start()
	defer h.kill()
	h.publish(kubelet(caA), registry("r", caA), registry("s", caA))
	h.publish(kubelet(caA), registry("s", caA))
	for _, want := range []string{"/srv", certsD + "r"} {
		if !slices.Contains(h.watched.directories, want) {
			t.Errorf("%s is not watched, but %q", want, h.watched.directories)
		}
	}
	h.elapse(time.Hour)
	if got := h.watched.directories; slices.Contains(got, certsD+"r") {
		t.Errorf("watched is what is gone: %q", got)
	}
}
