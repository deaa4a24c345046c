// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"fmt"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
)

// load takes up what an earlier run left.
func (k *Keeper) load(ctx context.Context) (err error) {
	if k.opt.Node == "" {
		return fmt.Errorf("the name of this node is not known")
	}
	var current *generation
	var lost [3]string
	if current, lost[0], err = k.store.generation(currentFile); err != nil {
		return err
	}
	if k.previous, lost[1], err = k.store.generation(previousFile); err != nil {
		return err
	}
	if k.pending, lost[2], err = k.store.pending(); err != nil {
		return err
	}
	for _, what := range lost {
		if what != "" {
			k.tell(audit.IdentityLost, "a file of the identity cannot be used: "+what)
		}
	}
	if err := k.recall(); err != nil {
		return err
	}
	k.loaded = true
	for _, g := range []*generation{current, k.previous} {
		if g != nil { // a pin that was taken back is trusted no more
			g.Cluster.Pinned = k.pins.Filter(g.Cluster.Pinned)
		}
	}
	if current == nil {
		current, k.previous = k.previous, nil
	}
	if current == nil {
		return nil
	}
	k.current = current // whose cluster is the one that is known
	l, err := k.open(current)
	if err != nil {
		k.tell(audit.IdentityLost, "the identity cannot be used: "+err.Error())
		k.current, k.previous = nil, current
		return nil
	}
	k.use(ctx, current, l)
	// Nothing is needed from there now, and asking may have to start the writer first.
	k.looked = k.opt.Clock.Now().Add(k.opt.Times.Look - k.every())
	if k.pending != nil && current.answers(k.pending) {
		// Killed between keeping the certificate and forgetting that its key was pending.
		k.pending = nil
		err = k.store.dropPending()
	}
	return err
}
