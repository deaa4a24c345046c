// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"errors"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
)

// starting takes up what an earlier run left.
func (k *Keeper) starting(ctx context.Context) transition {
	current, err := k.load()
	if err != nil {
		return transition{starting, err.Error(), k.opt.Times.PollInterval}
	}
	if err := k.resume(ctx, current); err != nil {
		return transition{NoCredential, err.Error(), k.opt.Times.PollInterval}
	}
	// What there is, is there for others before anybody is asked for more.
	if k.current == nil {
		return transition{NoCredential, "", 0}
	}
	return transition{Active, "", 0}
}

// load reads what is durable, and gives the best of the identities.
func (k *Keeper) load() (current *generation, err error) {
	if k.opt.Node == "" {
		return nil, errors.New("the name of this node is not known")
	}
	var lost [3]string
	if current, lost[0], err = k.store.generation(currentFile); err != nil {
		return nil, err
	}
	if k.previous, lost[1], err = k.store.generation(previousFile); err != nil {
		return nil, err
	}
	if k.attempt.pending, lost[2], err = k.store.pending(); err != nil {
		return nil, err
	}
	for _, what := range lost {
		if what != "" {
			k.tell(audit.IdentityLost, "a file of the identity cannot be used: "+what)
		}
	}
	if err := k.loadHint(); err != nil {
		return nil, err
	}
	for _, g := range []*generation{current, k.previous} {
		if g != nil { // a pin that was taken back is trusted no more
			g.Cluster.Pinned = k.pins.Filter(g.Cluster.Pinned)
		}
	}
	if current == nil {
		current, k.previous = k.previous, nil
	}
	return current, nil
}

// resume puts current to use, if there is one that can be.
func (k *Keeper) resume(ctx context.Context, current *generation) error {
	if current == nil {
		return nil
	}
	k.current = current // whose cluster is the one that is known
	c, err := k.open(current)
	if err != nil {
		k.tell(audit.IdentityLost, "the identity cannot be used: "+err.Error())
		k.current, k.previous = nil, current
		return nil
	}
	k.use(ctx, current, c)
	// Nothing is needed from there now, and asking may have to start the writer first.
	k.credentials.polled = k.opt.Clock.Now().Add(k.opt.Times.PollInterval - k.pollInterval())
	if k.attempt.pending == nil || !current.answers(k.attempt.pending) {
		return nil
	}
	// Killed between keeping the certificate and forgetting that its key was pending.
	k.attempt.pending = nil
	return k.store.dropPending()
}
