// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"sync"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/config"
	"github.com/node-cert-agent/node-cert-agent/agent/watch"
)

// watches are the two; configMap is nil where no field takes from it. Until run is called nothing
// is asked.
type watches struct {
	object, configMap <-chan watch.Reading
	run               func(context.Context)
}

// watches makes them, with a client, a server and a Reopen that both share. One that fails does not
// hold up the other.
func (s *Source) watches(shared watch.Options) (w watches) {
	var watchers []*watch.Watcher
	var reopen []chan struct{}
	add := func(what func(watch.Options) watch.Options) <-chan watch.Reading {
		ch := make(chan struct{}, 1)
		one := watch.New(what(watch.Options{Client: shared.Client, Server: shared.Server, Reopen: ch}))
		watchers, reopen = append(watchers, one), append(reopen, ch)
		return one.Readings()
	}
	w.object = add(s.watchObject)
	if s.followsConfigMap() {
		w.configMap = add(s.watchConfigMap)
	}
	w.run = func(ctx context.Context) {
		var wg sync.WaitGroup
		defer wg.Wait()
		for _, one := range watchers {
			wg.Go(func() { one.Run(ctx) })
		}
		for {
			select {
			case <-ctx.Done():
				return
			case <-shared.Reopen:
				for _, ch := range reopen {
					select {
					case ch <- struct{}{}:
					default: // one that nobody has received yet is as good as two
					}
				}
			}
		}
	}
	return w
}

func (s *Source) followsConfigMap() bool { return s.settings.ConfigMap != (config.ConfigMap{}) }

// watchObject adds what the configuration says of the ControllerConfig.
func (s *Source) watchObject(o watch.Options) watch.Options {
	of := s.settings.ControllerConfig
	o.Group, o.Version, o.Resource, o.Name = of.Group, of.Version, of.Resource, of.Name
	for _, r := range s.settings.Policy.Files {
		o.Fields = append(o.Fields, r.Field)
	}
	return s.times(o)
}

// watchConfigMap does the same for the second source.
func (s *Source) watchConfigMap(o watch.Options) watch.Options {
	of := s.settings.ConfigMap
	o.Version, o.Resource, o.Namespace, o.Name, o.Key = "v1", "configmaps", of.Namespace, of.Name, of.Key
	return s.times(o)
}

func (s *Source) times(o watch.Options) watch.Options {
	t := s.settings.Watch
	// 0 is a first try at once; to the watcher it would be its default.
	t.RetryJitter = max(t.RetryJitter, time.Millisecond)
	o.IdleTimeout, o.Timeout, o.RetryJitter, o.RetryMax = t.IdleTimeout, t.Timeout, t.RetryJitter, t.RetryMax
	return o
}
