// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"go.uber.org/zap"

	"github.com/node-cert-agent/node-cert-agent/agent/disk"
	"github.com/node-cert-agent/node-cert-agent/agent/state"
)

var errNoState = errors.New("the agent has never run here: there is no " + stateDir)

// directory opens the state directory. The directories that systemd makes for the service are made
// here in plain mode.
func (d *deps) directory() (*disk.Directory, error) {
	if d.plain {
		for _, name := range []string{stateDir, runtimeDir} {
			if err := os.MkdirAll(filepath.Join(d.options.Root, name), 0o700); err != nil {
				return nil, fmt.Errorf("making our own directories: %w", err)
			}
		}
	}
	dir, err := openState(d.tree)
	if err != nil {
		return nil, err
	}
	if err := dir.Mkdir(state.OperatorDir); err != nil {
		return nil, fmt.Errorf("making our own directories: %w", err)
	}
	return dir, nil
}

// lockState opens the state directory, locks it, and removes what a killed process left in it: nobody else works
// there. If somebody does, the error is disk.ErrLocked and the directory is open nevertheless.
func (d *deps) lockState() (dir *disk.Directory, release func(), err error) {
	if dir, err = d.directory(); err != nil {
		return nil, nil, err
	}
	if release, err = dir.Lock(); err != nil {
		return dir, nil, err
	}
	if err := dir.Sweep(".", "blobs", "pending"); err != nil {
		d.log.Warn("sweeping the state directory", zap.Error(err))
	}
	return dir, release, nil
}

// asService runs what works as the service user and alone on the state directory.
func (f *flags) asService(stderr io.Writer, run func(*deps, *disk.Directory) error) error {
	if err := f.becomeServiceUser(); err != nil {
		return err
	}
	d, err := newDeps(f, stderr)
	if err != nil {
		return err
	}
	defer d.close()
	dir, release, err := d.lockState()
	if err != nil {
		return err
	}
	defer release()
	return run(d, dir)
}

// loadState reads what an agent has remembered on this host, without touching it; nothing if there was
// none.
func (d *deps) loadState() (state.State, *state.Store, error) {
	dir, err := openState(d.tree)
	if errors.Is(err, errNoState) {
		return state.State{}, nil, nil
	}
	if err != nil {
		return state.State{}, nil, err
	}
	store := state.Open(dir)
	st, _, err := store.Peek()
	return st, store, err
}

// ownState opens the state directory as the service user.
func (f *flags) ownState() (*disk.Directory, error) {
	if err := f.becomeServiceUser(); err != nil {
		return nil, err
	}
	tree, err := disk.Open(f.root)
	if err != nil {
		return nil, err
	}
	return openState(tree)
}

// openState fails with errNoState if there is no state directory.
func openState(tree *disk.Tree) (*disk.Directory, error) {
	dir, err := tree.Directory(stateDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNoState
	}
	if err != nil {
		return nil, fmt.Errorf("opening the state directory: %w", err)
	}
	return dir, nil
}
