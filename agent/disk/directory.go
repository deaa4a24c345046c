// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// Directory is a directory of our own, such as the state directory: relative names, files of mode
// 0600. It implements state.Dir.
type Directory struct {
	tree *Tree
	path string
	root *os.Root
}

// Directory opens the directory at p, which must exist. The error matches fs.ErrNotExist and
// fs.ErrPermission.
func (t *Tree) Directory(p string) (*Directory, error) {
	root, err := t.openRoot(p)
	if err != nil {
		return nil, err
	}
	return &Directory{tree: t, path: p, root: root}, nil
}

// ReadFile is Tree.ReadFile. In a subdirectory that does not exist there is no such file either.
func (d *Directory) ReadFile(name string) ([]byte, error) {
	if _, err := d.root.Stat(path.Dir(name)); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read %s: %w", path.Join(d.path, name), fs.ErrNotExist)
	}
	return d.tree.ReadFile(path.Join(d.path, name))
}

// WriteFile replaces a file atomically and durably. A subdirectory that is missing is made.
func (d *Directory) WriteFile(name string, data []byte) error {
	if dir := path.Dir(name); dir != "." {
		if err := d.Mkdir(dir); err != nil {
			return err
		}
	}
	return d.tree.WriteFile(path.Join(d.path, name), data, 0o600)
}

// Mkdir makes a subdirectory, unless it is there.
func (d *Directory) Mkdir(name string) error {
	if err := d.root.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making %s: %w", path.Join(d.path, name), unwrapPath(err))
	}
	return nil
}

// Rename renames within the directory. It is not durable by itself.
func (d *Directory) Rename(from, to string) error { return d.root.Rename(from, to) }

// Remove unlinks a file. It is not durable by itself.
func (d *Directory) Remove(name string) error { return d.root.Remove(name) }

// List gives the names in a subdirectory; none if it does not exist.
func (d *Directory) List(subdirectory string) ([]string, error) {
	f, err := d.root.Open(subdirectory)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return f.Readdirnames(-1)
}

// Sweep removes the temporary files that a killed process left in the directory and the named
// subdirectories; "." is the directory itself.
func (d *Directory) Sweep(subdirectories ...string) error {
	ses := d.tree.newSession()
	defer ses.close()
	var errs []error
	for _, s := range subdirectories {
		dir, err := ses.open(path.Join(d.path, s))
		if err != nil {
			continue
		}
		_, err = tempDir{dir, func(string) bool { return true }}.sweep(plan.FileSpec{UID: os.Geteuid()})
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// ReadFile returns the content of a file of our own, such as the state store's. Like every read of
// this package it follows no link and takes no more than MaxSize bytes. The error matches
// fs.ErrNotExist if there is no such file.
func (t *Tree) ReadFile(name string) ([]byte, error) {
	ses := t.newSession()
	defer ses.close()
	at, err := ses.find(Target{Path: name})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if at.info == nil {
		return nil, fmt.Errorf("read %s: %w", name, fs.ErrNotExist)
	}
	var buf bytes.Buffer
	if _, err := at.read(&buf); err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return buf.Bytes(), nil
}

// WriteFile replaces a file of our own, owned by the caller, atomically and durably. It is a Commit
// of one change.
func (t *Tree) WriteFile(name string, data []byte, mode fs.FileMode) error {
	return t.Commit([]Change{{Target{Path: name, Mode: mode, UID: -1, GID: -1}, data}}, nil)
}
