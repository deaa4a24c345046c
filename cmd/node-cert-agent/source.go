// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"

	"github.com/node-cert-agent/node-cert-agent/agent"
	"github.com/node-cert-agent/node-cert-agent/agent/config"
	"github.com/node-cert-agent/node-cert-agent/agent/disk"
	"github.com/node-cert-agent/node-cert-agent/agent/identity"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/watch"
)

// stateNoIdentity is the state of a host as which nobody can speak to the API server yet.
const stateNoIdentity = "no identity"

// identityRetry is how often a missing kubeconfig is looked for when no event announced it.
const identityRetry = 30 * time.Second

// source plugs identity, watch and projection together into what the agent's loop reads.
type source struct {
	wiring     *wiring
	board      *board
	settings   config.Settings
	kubeconfig string
	own        *disk.Directory // the state directory, unless there is a kubeconfig
	readings   chan agent.Reading
	projector  watch.Projector
	projected  *watch.Object
}

func newSource(w *wiring, s config.Settings, kubeconfig string) *source {
	return &source{wiring: w, settings: s, kubeconfig: kubeconfig, board: &board{}, readings: make(chan agent.Reading, 1)}
}

// Readings implements agent.Source.
func (s *source) Readings() <-chan agent.Reading { return s.readings }

// run follows the object with the identity that the kubeconfig gives, and starts over whenever the
// file changes; without a kubeconfig, with an identity of our own.
func (s *source) run(ctx context.Context) {
	if s.kubeconfig == "" {
		s.runOwn(ctx)
		return
	}
	drift := s.wiring.watch(filepath.Dir(s.kubeconfig))
	defer func() { _ = drift.Close() }()
	for ctx.Err() == nil {
		read := s.digest()
		id, err := identity.FromKubeconfig(s.kubeconfig)
		if err != nil {
			s.offer(agent.Reading{State: stateNoIdentity, Reason: plan.Printable(err.Error())})
			select {
			case <-ctx.Done():
			case <-drift.Changed():
			case <-time.After(identityRetry):
			}
			continue
		}
		s.follow(ctx, id, func() bool { return s.digest() != read }, drift.Changed())
	}
}

// digest tells one content of the kubeconfig from another; zero is a file that cannot be read.
func (s *source) digest() plan.Digest {
	b, err := os.ReadFile(s.kubeconfig)
	if err != nil {
		return plan.Digest{}
	}
	return plan.DigestOf(b)
}

// follow passes readings on until the kubeconfig is stale.
func (s *source) follow(ctx context.Context, id *identity.Identity, stale func() bool, changes <-chan struct{}) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	o := s.watching()
	o.Client, o.Server = id.HTTPClient(), id.Server()
	w := watch.New(o)
	go w.Run(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-w.Readings():
			s.offer(s.translate(r))
		case <-changes:
			if stale() {
				s.wiring.log.Info("the kubeconfig changed", zap.String("file", s.kubeconfig))
				return
			}
		}
	}
}

// watching is what the configuration says of the watch; as whom and whom to ask is missing.
func (s *source) watching() watch.Options {
	o, t := s.settings.Object, s.settings.Follow
	t.RetrySpread = max(t.RetrySpread, time.Millisecond) // 0 is a first try at once; to the watcher it would be its default
	return watch.Options{Group: o.Group, Version: o.Version, Resource: o.Resource, Name: o.Name,
		Silence: t.Silence, Lifetime: t.WatchTimeout, Spread: t.RetrySpread, MaxDelay: t.RetryMax}
}

// translate projects an object onto the host's rows, if it is a new one.
func (s *source) translate(r watch.Reading) agent.Reading {
	out := agent.Reading{State: string(r.State), Reason: r.Reason}
	if r.Object != nil && r.Object != s.projected {
		d := s.projector.Project(*r.Object, s.settings.Policy.Rows, time.Now())
		d.Verified = true // the client refuses servers that it cannot verify
		out.Desired, s.projected = &d, r.Object
	}
	return out
}

// offer puts a reading where the loop looks. One that the loop has not taken yet is replaced, but
// what it desired is not lost.
func (s *source) offer(r agent.Reading) {
	select {
	case old := <-s.readings:
		if r.Desired == nil {
			r.Desired = old.Desired
		}
	default:
	}
	s.readings <- r // there is room: nobody else sends
}
