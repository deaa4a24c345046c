// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"time"

	"go.uber.org/zap"

	"github.com/node-cert-agent/node-cert-agent/agent"
	"github.com/node-cert-agent/node-cert-agent/agent/watch"
)

// watchDebounce is how long changes are collected for one notification.
const watchDebounce = 50 * time.Millisecond

// fileWatcher is an agent.FileWatcher that can be closed.
type fileWatcher interface {
	agent.FileWatcher
	Close() error
}

// watch announces changes in directories.
func (d *deps) watch(directories ...string) fileWatcher {
	fw, err := watch.NewFileWatcher(watchDebounce)
	if err != nil {
		d.log.Warn("changes of files will only be noticed by the resync", zap.Error(err))
		return noWatcher{}
	}
	if err := fw.Set(directories); err != nil {
		d.log.Warn("watching for changes", zap.Error(err))
	}
	return fw
}

// noWatcher takes the place of inotify where that fails: it announces nothing, and the resync has to do.
type noWatcher struct{}

func (noWatcher) Changed() <-chan struct{} { return nil }
func (noWatcher) Set([]string) error       { return nil }
func (noWatcher) Close() error             { return nil }

// rootedWatcher watches below root: the agent names paths of the host, the kernel those of the machine.
type rootedWatcher struct {
	fileWatcher
	root string
}

// Set implements agent.FileWatcher.
func (b rootedWatcher) Set(directories []string) error {
	real := make([]string, len(directories))
	for i, d := range directories {
		real[i] = filepath.Join(b.root, d)
	}
	return b.fileWatcher.Set(real)
}
