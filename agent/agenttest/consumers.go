// SPDX-License-Identifier: Apache-2.0

package agenttest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/liveness"
	"github.com/node-cert-agent/node-cert-agent/agent/pki"
)

// Consumers are servers that use bundles. They follow no file: a test says what each uses.
type Consumers struct {
	mu      sync.Mutex
	clock   *Clock
	asking  *sync.Cond
	uses    map[string][]pki.Cert
	changed chan struct{} // closed and replaced at each change
	asked   []liveness.ProbeTarget
}

// NewConsumers has none that runs.
func NewConsumers(c *Clock) *Consumers {
	all := &Consumers{clock: c, uses: make(map[string][]pki.Cert), changed: make(chan struct{})}
	all.asking = sync.NewCond(&all.mu)
	return all
}

// Use has the server at an address use a bundle from now on. One that does not parse, such as the empty
// one, means that nothing listens there.
func (c *Consumers) Use(address, bundle string) {
	b, _ := pki.Parse([]byte(bundle), pki.Options{})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.uses[address] = b.Certs
	close(c.changed)
	c.changed = make(chan struct{})
}

// Asked is what was asked about. Questions that are asked at once come in any order.
func (c *Consumers) Asked() []liveness.ProbeTarget {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.asked)
}

// Await returns when somebody was asked n times: from then on the timeout of the last question runs.
func (c *Consumers) Await(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.asked) < n {
		c.asking.Wait()
	}
}

// Probe implements consumers.Prober.
func (c *Consumers) Probe(ctx context.Context, who liveness.Consumer, want liveness.ProbeTarget,
	timeout time.Duration) liveness.ProbeResult {
	late := c.clock.After(timeout)
	c.mu.Lock()
	c.asked = append(c.asked, want)
	c.asking.Broadcast()
	c.mu.Unlock()
	for last := false; ; {
		c.mu.Lock()
		uses, changed := c.uses[who.Address], c.changed
		c.mu.Unlock()
		switch added, removed := pki.Diff(uses, want.Certs); {
		case len(uses) > 0 && len(added)+len(removed) == 0:
			return liveness.ProbeResult{State: liveness.Live}
		case last && len(uses) == 0:
			return liveness.ProbeResult{State: liveness.Unknown, Reason: "nothing listens there"}
		case last:
			return liveness.ProbeResult{State: who.Mismatch, Reason: "uses something else"}
		}
		select {
		case <-changed:
		case <-late:
			last = true
		case <-ctx.Done():
			return liveness.ProbeResult{}
		}
	}
}
