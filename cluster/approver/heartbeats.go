// SPDX-License-Identifier: Apache-2.0

package approver

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// heartbeats are when this replica, in this term as the leader, saw that a node had written its state, or for
// one that has not written since, when it began to look. An agent writes its status with another heartbeat each time,
// and no other agent may write it. What time it says counts for nothing, and neither does what managedFields say. So
// time in which nobody looked, or could have written, makes no identity stale. It is safe for concurrent use.
type heartbeats struct {
	mu sync.Mutex
	of map[string]heartbeat
}

type heartbeat struct {
	uid     types.UID
	version string // the newest that was seen: an informer may be behind what was read
	status  nodeStatus
	at      time.Time
}

// see notes the state as it is now, and returns when the node last wrote it.
func (h *heartbeats) see(state nodeState, now time.Time) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	last, ok := h.of[state.Name]
	if ok && state.UID == last.uid {
		order, err := resourceversion.CompareResourceVersion(state.ResourceVersion, last.version)
		if err == nil && order < 0 {
			return last.at
		}
		if state.Status == last.status {
			now = last.at
		}
	}
	h.of[state.Name] = heartbeat{state.UID, state.ResourceVersion, state.Status, now}
	return now
}

// forget is for a state that is gone.
func (h *heartbeats) forget(node string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.of, node)
}
