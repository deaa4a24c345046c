// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/node-cert-agent/node-cert-agent/agent"
	"github.com/node-cert-agent/node-cert-agent/agent/apiserver"
	"github.com/node-cert-agent/node-cert-agent/agent/config"
	"github.com/node-cert-agent/node-cert-agent/agent/disk"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/agent/watch"
)

// stateNoIdentity is the state of a host as which nobody can speak to the API server yet.
const stateNoIdentity = "no identity"

// identityRetry is how often a missing kubeconfig is looked for when no event announced it.
const identityRetry = 30 * time.Second

// source plugs identity, watch and projection together into what the agent's loop reads.
type source struct {
	wiring      *wiring
	settings    config.Settings
	kubeconfig  string
	own         *disk.Directory // the state directory, unless there is a kubeconfig
	stateObject *report.Object
	readings    chan agent.Reading
	trust       *trust
	object      part
	configMap   part
}

// part is what is known of one of the two sources.
type part struct {
	watch.Reading
	projector watch.Projector
	projected *watch.Object
	desired   *plan.Desired // nil until it was read
}

func newSource(w *wiring, s config.Settings, kubeconfig string) *source {
	return &source{wiring: w, settings: s, kubeconfig: kubeconfig, trust: &trust{}, readings: make(chan agent.Reading, 1)}
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
		id, err := apiserver.FromKubeconfig(s.kubeconfig)
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
func (s *source) follow(ctx context.Context, id *apiserver.Conn, stale func() bool, changes <-chan struct{}) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.trust.speaks(id, nil)
	f := s.feeds(watch.Options{Client: id.HTTPClient(), Server: id.Server()})
	go f.run(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-f.object:
			s.offer(s.take(&s.object, r))
		case r := <-f.configMap:
			s.offer(s.take(&s.configMap, r))
		case <-changes:
			if stale() {
				s.wiring.log.Info("the kubeconfig changed", zap.String("file", s.kubeconfig))
				return
			}
		}
	}
}

// feeds are the two watches; configMap is nil where no row takes from it. Until run is called nothing
// is asked.
type feeds struct {
	object, configMap <-chan watch.Reading
	run               func(context.Context)
}

// feeds makes them, with a client, a server and a Reopen that both share. One that fails does not
// hold up the other.
func (s *source) feeds(o watch.Options) (f feeds) {
	var watchers []*watch.Watcher
	var doors []chan struct{}
	follow := func(what func(watch.Options) watch.Options) <-chan watch.Reading {
		door := make(chan struct{}, 1)
		w := watch.New(what(watch.Options{Client: o.Client, Server: o.Server, Reopen: door}))
		watchers, doors = append(watchers, w), append(doors, door)
		return w.Readings()
	}
	f.object = follow(s.watching)
	if s.settings.ConfigMap != (config.ConfigMap{}) {
		f.configMap = follow(s.watchingConfigMap)
	}
	f.run = func(ctx context.Context) {
		var parts sync.WaitGroup
		defer parts.Wait()
		for _, w := range watchers {
			parts.Go(func() { w.Run(ctx) })
		}
		for {
			select {
			case <-ctx.Done():
				return
			case <-o.Reopen:
				for _, d := range doors {
					nudge(d)
				}
			}
		}
	}
	return f
}

// nudge does not wait: one that nobody has felt yet is as good as two.
func nudge(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// watching adds what the configuration says of the object.
func (s *source) watching(o watch.Options) watch.Options {
	of := s.settings.Object
	o.Group, o.Version, o.Resource, o.Name = of.Group, of.Version, of.Resource, of.Name
	for _, r := range s.settings.Policy.Rows {
		o.Rows = append(o.Rows, r.ID)
	}
	return s.patience(o)
}

// watchingConfigMap does the same for the second source.
func (s *source) watchingConfigMap(o watch.Options) watch.Options {
	of := s.settings.ConfigMap
	o.Version, o.Resource, o.Namespace, o.Name, o.Key = "v1", "configmaps", of.Namespace, of.Name, of.Key
	return s.patience(o)
}

func (s *source) patience(o watch.Options) watch.Options {
	t := s.settings.Follow
	t.RetrySpread = max(t.RetrySpread, time.Millisecond) // 0 is a first try at once; to the watcher it would be its default
	o.Silence, o.Lifetime, o.Spread, o.MaxDelay = t.Silence, t.WatchTimeout, t.RetrySpread, t.RetryMax
	return o
}

// take learns what one source says, and gives what is known of both. If the source's object is a new
// one, it is projected onto the host's rows.
func (s *source) take(p *part, r watch.Reading) agent.Reading {
	p.Reading = r
	out := agent.Reading{State: string(s.object.State), Reason: s.object.Reason, Time: plan.Evidence{Date: s.object.ServerDate, Seen: s.object.SeenAt}}
	if out.State == "" {
		out.State = string(watch.Connecting)
	}
	if s.configMap.State != "" {
		out.ConfigMap = &report.Source{State: string(s.configMap.State), Reason: s.configMap.Reason}
	}
	if r.Object != nil && r.Object != p.projected {
		d := p.projector.Project(*r.Object, s.settings.Policy.Rows, time.Now())
		d.Verified = true // the client refuses servers that it cannot verify
		p.desired, p.projected = &d, r.Object
		out.Desired = s.desired()
	}
	return out
}

// desired is what both sources ask for, as far as they were read.
func (s *source) desired() *plan.Desired {
	d := plan.Desired{Verified: true, Partial: true}
	if s.object.desired != nil {
		d = *s.object.desired
	}
	if s.configMap.desired != nil {
		d = d.With(*s.configMap.desired)
	}
	return &d
}

// offer puts a reading where the loop looks. One that the loop has not taken yet is replaced, but
// what it desired is not lost.
func (s *source) offer(r agent.Reading) {
	s.wiring.log.Debug("read", zap.String("state", r.State), zap.String("reason", r.Reason),
		zap.Bool("desired", r.Desired != nil))
	select {
	case old := <-s.readings:
		if r.Desired == nil {
			r.Desired = old.Desired
		}
	default:
	}
	s.readings <- r // there is room: nobody else sends
}
