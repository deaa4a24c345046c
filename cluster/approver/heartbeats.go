// SPDX-License-Identifier: Apache-2.0

package approver

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// heartbeats are when this replica, in this term as the leader, saw that a node had written its state, or for
// one that has not written since, when it began to look. What a node says of the time counts for nothing, and
// neither does what managedFields say, which a node can write; metadata.generation is the API server's. So
// time in which nobody looked, or could have written, makes no identity stale. It is safe for concurrent use.
type heartbeats struct {
	mu sync.Mutex
	of map[string]heartbeat
}

type heartbeat struct {
	uid        types.UID
	generation int64
	at         time.Time
}

// see notes the state as it is now, and returns when the node last wrote it.
func (h *heartbeats) see(state nodeState, now time.Time) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	last, ok := h.of[state.Name]
	if !ok || state.UID != last.uid || state.Generation > last.generation {
		last = heartbeat{state.UID, state.Generation, now}
		h.of[state.Name] = last
	}
	return last.at
}

// forget is for a state that is gone.
func (h *heartbeats) forget(node string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.of, node)
}
