// SPDX-License-Identifier: Apache-2.0

package clock_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/clock"
)

func TestAFleetDoesNotRestartAtOnce(t *testing.T) {
	const nodes, window = 1000, 10 * time.Minute
	var minutes [10]int
	for i := range nodes {
		node := fmt.Sprintf("worker-%d.example", i)
		at := clock.Place(node, "kubelet.service", window)
		if at < 0 || at >= window || at != clock.Place(node, "kubelet.service", window) {
			t.Fatalf("%s restarts after %v", node, at)
		}
		minutes[at/time.Minute]++
	}
	for m, n := range minutes {
		if n < nodes/20 || n > nodes/5 {
			t.Errorf("%d of %d nodes restart in minute %d", n, nodes, m)
		}
	}
	if clock.Place("n", "u", 0) != 0 {
		t.Error("without a window there is a wait")
	}
}
