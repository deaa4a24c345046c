// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"maps"
	"slices"

	"go.uber.org/zap"
)

// FileWatcher announces that something happened to a managed file, perhaps by our own hand.
type FileWatcher interface {
	Changed() <-chan struct{}
	// Set says which directories hold managed files now. An error names those that cannot be
	// watched; the resync still looks at them.
	Set(directories []string) error
}

// followed are the directories that are watched.
type followed struct {
	watcher     FileWatcher
	log         *zap.Logger
	directories map[string]bool // nil if they are to be set anew
	trouble     string          // why they could not be set the last time
}

// set has directories watched. They are set anew at each resync, because what was replaced or mounted over announces
// nothing.
func (f *followed) set(directories map[string]bool) {
	if maps.Equal(directories, f.directories) {
		return
	}
	trouble := ""
	if err := f.watcher.Set(slices.Sorted(maps.Keys(directories))); err != nil {
		if trouble = err.Error(); trouble != f.trouble {
			f.log.Warn("watching the managed directories", zap.Error(err))
		}
		directories = nil
	}
	f.directories, f.trouble = directories, trouble
}
