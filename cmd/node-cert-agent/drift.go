// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"time"

	"go.uber.org/zap"

	"github.com/node-cert-agent/node-cert-agent/agent"
	"github.com/node-cert-agent/node-cert-agent/agent/watch"
)

// driftQuiet is how long more changes may join a notification.
const driftQuiet = 50 * time.Millisecond

// drift is agent.Drift that can be ended.
type drift interface {
	agent.Drift
	Close() error
}

// watch announces changes in directories.
func (w *wiring) watch(directories ...string) drift {
	d, err := watch.NewDrift(driftQuiet)
	if err != nil {
		w.log.Warn("changes of files will only be noticed by the resync", zap.Error(err))
		return still{}
	}
	if err := d.Set(directories); err != nil {
		w.log.Warn("watching for changes", zap.Error(err))
	}
	return d
}

// still is drift without inotify: nothing is announced, and the callers' own timers have to do.
type still struct{}

func (still) Changed() <-chan struct{} { return nil }
func (still) Set([]string) error       { return nil }
func (still) Close() error             { return nil }

// below is drift in a tree: the agent names paths of the host, the kernel those of the machine.
type below struct {
	drift
	root string
}

// Set implements agent.Drift.
func (b below) Set(directories []string) error {
	real := make([]string, len(directories))
	for i, d := range directories {
		real[i] = filepath.Join(b.root, d)
	}
	return b.drift.Set(real)
}
