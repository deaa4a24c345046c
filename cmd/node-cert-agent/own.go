// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"go.uber.org/zap"

	"github.com/node-cert-agent/node-cert-agent/agent"
	"github.com/node-cert-agent/node-cert-agent/agent/apiserver"
	"github.com/node-cert-agent/node-cert-agent/agent/bootstrap"
	"github.com/node-cert-agent/node-cert-agent/agent/config"
	"github.com/node-cert-agent/node-cert-agent/agent/disk"
	"github.com/node-cert-agent/node-cert-agent/agent/identity"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/agent/secret"
	"github.com/node-cert-agent/node-cert-agent/agent/watch"
)

// runOwn follows the object with an identity of our own: got from a bootstrap credential, kept in the
// state directory, exchanged under way.
func (s *source) runOwn(ctx context.Context) {
	k := identity.New(s.wiring.identity(s.settings, s.own))
	s.trust.speaks(k, k.Trust)
	var parts sync.WaitGroup
	defer parts.Wait()
	parts.Go(func() { k.Run(ctx) })
	var f feeds
	last := agent.Reading{State: stateNoIdentity}
	for {
		select {
		case <-ctx.Done():
			return
		case st := <-k.Readings():
			now := shown(st)
			if last.Identity != nil && *last.Identity == now {
				continue
			}
			if last.Identity = &now; f.object == nil {
				last.Reason = join(now.State, now.Reason)
			}
			if st.Usable && f.object == nil {
				select {
				case <-k.Swapped(): // by the first identity, which nobody used before
				default:
				}
				f = s.feeds(watch.Options{Client: k.HTTPClient(), Server: k.Server(), Reopen: k.Swapped()})
				parts.Go(func() { f.run(ctx) })
				parts.Go(func() { s.stateObject.Run(ctx, k.HTTPClient(), k.Server()) })
			}
			s.offer(last)
		case r := <-f.object:
			if r.Object != nil {
				k.Hint(r.Object.Annotations[identity.HintAnnotation])
			}
			last = s.pass(&s.object, r, last)
		case r := <-f.configMap:
			last = s.pass(&s.configMap, r, last)
		}
	}
}

// pass offers what is known after r, with the identity of the last reading, and returns it.
func (s *source) pass(p *part, r watch.Reading, last agent.Reading) agent.Reading {
	now := s.take(p, r)
	now.Identity = last.Identity
	s.offer(now)
	now.Desired = nil
	return now
}

var errNoIdentity = errors.New("this host has no identity yet")

// stored is the identity that the service keeps, to look with and not to be changed.
func (s *source) stored() (*apiserver.Conn, error) {
	own, err := s.wiring.tree.Directory(stateDir)
	var id *apiserver.Conn
	if err == nil {
		o := s.wiring.identity(s.settings, own)
		id, err = identity.Stored(own, o.Node)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, exit{exitNoID, errNoIdentity}
	}
	if err != nil {
		return nil, exit{exitNoID, err}
	}
	return id, nil
}

// shown is a status as it is published. What it quotes of others is escaped and cut.
func shown(s identity.Status) report.Identity {
	return report.Identity{State: string(s.State), Reason: plan.Printable(s.Reason), Serial: s.Serial, PublicKey: s.PublicKey, Issued: s.Issued.UTC(), Expires: s.Expires.UTC(), Renew: s.Renew.UTC()}
}

func join(state, reason string) string {
	if reason == "" {
		return state
	}
	return state + ": " + reason
}

// identity is how this host's identity is got and kept.
func (w *wiring) identity(s config.Settings, own *disk.Directory) identity.Options {
	name, err := config.NodeName(w.options, s)
	if err != nil {
		w.log.Warn("looking for the name of this node", zap.Error(err))
	}
	i := s.Identity
	return identity.Options{Node: name, Lifetime: i.Lifetime, Dir: own, Bootstrap: credentials{w.half(s)}, Pins: s.Pins, FollowHint: s.FollowHint, Credential: handedOver(), Trail: w.trail,
		Times: identity.Times{Look: i.Look, Glance: i.Glance, PendingMax: i.PendingMax, Probe: i.Probe, SuspectAfter: i.SuspectAfter, DeniedMin: i.DeniedMin, DeniedMax: i.DeniedMax}}
}

// credentials are the writer's bootstrap files, for which nobody waits for ever.
type credentials struct{ half }

// Bootstrap implements identity.Bootstrap.
func (c credentials) Bootstrap(ctx context.Context) ([]bootstrap.Credential, error) {
	ctx, cancel := context.WithTimeout(ctx, credentialsTimeout)
	defer cancel()
	return c.half.Bootstrap(ctx)
}

// Consume implements identity.Bootstrap.
func (c credentials) Consume(ctx context.Context, digest plan.Digest) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, credentialsTimeout)
	defer cancel()
	return c.half.Consume(ctx, digest)
}

// handedOver is the credential bootstrap-kubeconfig of systemd.exec(5) LoadCredential=, if there is one.
func handedOver() secret.Bytes {
	dir := os.Getenv("CREDENTIALS_DIRECTORY")
	if dir == "" {
		return secret.Bytes{}
	}
	f, err := os.Open(filepath.Join(dir, "bootstrap-kubeconfig")) //nolint:gosec // systemd sets it
	if err != nil {
		return secret.Bytes{}
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err != nil {
		return secret.Bytes{}
	}
	return secret.New(b)
}
