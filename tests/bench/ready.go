// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// readyBudget is how long a start may take until systemd has READY=1, and what is ordered after the agent, the
// kubelet, may start.
const readyBudget = 150

// ready is the time of `systemctl start` of an agent that has an identity and its files, by a clock outside the
// host, until it returns: the polkit rule is rendered and the writer is started in it. The floor is the start of
// the floor's service, which is ready as soon as it is executed: what systemd and the way into the host cost.
func ready(ctx context.Context, b *bed, p plan, t *table) error {
	if err := b.identify(ctx); err != nil {
		return err
	}
	times := map[string]samples{}
	units := map[string][]string{"agent": {agentUnit, writerUnit}, "floor": {floorUnit}}
	for range p.starts {
		for _, i := range rand.Perm(len(b.arms)) {
			name := b.arms[i].name
			if _, err := b.Host.Run(ctx, append([]string{"systemctl", "stop"}, units[name]...)...); err != nil {
				return err
			}
			pause(ctx, shortPause)
			began := time.Now()
			if _, err := b.Host.Run(ctx, "systemctl", "start", units[name][0]); err != nil {
				return fmt.Errorf("the start of the %s: %w", name, err)
			}
			times[name] = append(times[name], time.Since(began))
			if err := eventually(ctx, "following", func() bool { return name == "floor" || b.status().State == "following" }); err != nil {
				return err
			}
		}
	}
	t.compare("systemctl start -> READY=1", times, nil)
	t.judge("  agent, p50", times["agent"].at(.5), readyBudget, "ms")
	t.judge("  agent, p95", times["agent"].at(.95), readyBudget, "ms")
	return nil
}
