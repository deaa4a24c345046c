// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"errors"
	"fmt"
	"io/fs"
)

// Dir is the state directory. Names are relative to it and have at most one element before the last.
type Dir interface {
	// ReadFile fails with an error that is fs.ErrNotExist if there is no such file.
	ReadFile(name string) ([]byte, error)
	// WriteFile replaces a file atomically and durably, with mode 0600. It makes a missing
	// subdirectory.
	WriteFile(name string, data []byte) error
	Rename(from, to string) error
	Remove(name string) error
}

// Names in the state directory.
const (
	currentFile  = "identity.pem"
	previousFile = "identity.previous.pem"
	pendingFile  = "pending/key.pem"
	hintFile     = "cluster-hint.json"
	// bad is appended to the name of a file that cannot be used and is set aside.
	bad = ".bad"
	// reset is appended by Reset.
	reset = ".reset"
)

// allFiles are the names that Reset sets aside.
var allFiles = []string{pendingFile, previousFile, currentFile, hintFile}

// Reset sets the identity in dir aside, the pending key included, so that the next start begins anew
// with a bootstrap credential. It says what was set aside, and deletes nothing but what an earlier
// Reset had set aside. What was set aside goes once another identity has been proven.
func Reset(dir Dir) (aside []string, err error) {
	for _, name := range allFiles {
		switch err := dir.Rename(name, name+reset); {
		case err == nil:
			aside = append(aside, name+reset)
		case !errors.Is(err, fs.ErrNotExist):
			return aside, fmt.Errorf("setting %s aside: %v", name, err)
		}
	}
	return aside, nil
}

// dropReset removes what Reset had set aside. What cannot be removed is tried again with the next identity.
func (s store) dropReset() {
	for _, name := range allFiles {
		_ = s.dir.Remove(name + reset)
	}
}

// store keeps generations and the pending key.
type store struct {
	dir  Dir
	node string
}

// generation reads one. It is nil if there is none; a file that cannot be used is set aside, and lost
// says what is wrong with it.
func (s store) generation(name string) (g *generation, lost string, err error) {
	return load(s, name, decodeGeneration)
}

func load[T any](s store, name string, decode func(data []byte, node string) (*T, error)) (t *T, lost string,
	err error) {
	data, err := s.read(name)
	if err != nil || data == nil {
		return nil, "", err
	}
	if t, err = decode(data, s.node); err == nil {
		return t, "", nil
	}
	lost, err = s.aside(name, err)
	return nil, lost, err
}

// read gives nil if there is no such file.
func (s store) read(name string) ([]byte, error) {
	data, err := s.dir.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the identity: %v", err)
	}
	return append([]byte{}, data...), nil
}

// aside keeps a file that cannot be used where it does no harm.
func (s store) aside(name string, why error) (lost string, err error) {
	if err := s.dir.Rename(name, name+bad); err != nil {
		return "", fmt.Errorf("setting %s aside: %v", name, err)
	}
	return fmt.Sprintf("%s %v; kept as %s%s", name, why, name, bad), nil
}

// commit makes g durable as the current generation, and the one before it as the previous.
func (s store) commit(g, before *generation) error {
	if before != nil {
		if err := s.write(previousFile, before); err != nil {
			return err
		}
	}
	return s.write(currentFile, g)
}

func (s store) write(name string, g *generation) error {
	data, err := g.encode()
	if err != nil {
		return err
	}
	return s.keep(name, data, "the identity")
}

// pending reads the key that waits for a certificate; one that cannot be used is set aside.
func (s store) pending() (p *pending, lost string, err error) {
	return load(s, pendingFile, decodePending)
}

func (s store) keepPending(p *pending) error {
	data, err := p.encode()
	if err != nil {
		return err
	}
	return s.keep(pendingFile, data, "the pending key")
}

func (s store) dropPending() error { return s.drop(pendingFile, "the pending key") }

func (s store) keepHint(text []byte) error { return s.keep(hintFile, text, "the hint") }

func (s store) dropHint() error { return s.drop(hintFile, "the hint") }

func (s store) keep(name string, data []byte, what string) error {
	if err := s.dir.WriteFile(name, data); err != nil {
		return fmt.Errorf("keeping %s: %v", what, err)
	}
	return nil
}

func (s store) drop(name, what string) error {
	if err := s.dir.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing %s: %v", what, err)
	}
	return nil
}
