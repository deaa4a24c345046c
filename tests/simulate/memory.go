// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"bytes"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/node-cert-agent/node-cert-agent/agent/state"
)

// memory is /var/lib: the agent's state directory.
type memory struct {
	w     *env
	files map[string][]byte
	store *state.Store
	// behind is set if the last change failed.
	behind bool

	decoded string // the state that claimed was read from
	claimed map[string]claim
}

// open is what a new process does.
func (m *memory) open() { m.store = state.Open(m) }

// ReadFile implements state.Dir.
func (m *memory) ReadFile(name string) ([]byte, error) {
	if m.w.faults.dead {
		return nil, errKilled
	}
	b, ok := m.files[name]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return bytes.Clone(b), nil
}

// change does what is asked, unless it fails before.
func (m *memory) change(do func()) error {
	before, after := m.w.meet(saving)
	if before != nil {
		m.w.model.unsaved, m.behind = true, true
		return before
	}
	do()
	m.behind = false
	for _, u := range m.w.systemd.units {
		u.fresh = false
	}
	if after != nil {
		m.w.model.unsaved = true
	}
	return after
}

// WriteFile implements state.Dir.
func (m *memory) WriteFile(name string, data []byte) error {
	return m.change(func() { m.files[name] = bytes.Clone(data) })
}

// Rename implements state.Dir.
func (m *memory) Rename(from, to string) error {
	return m.change(func() { m.files[to] = m.files[from]; delete(m.files, from) })
}

// Remove implements state.Dir.
func (m *memory) Remove(name string) error {
	return m.change(func() { delete(m.files, name) })
}

// List implements state.Dir.
func (m *memory) List(sub string) (names []string, err error) {
	if m.w.faults.dead {
		return nil, errKilled
	}
	for _, name := range slices.Sorted(maps.Keys(m.files)) {
		if rest, ok := strings.CutPrefix(name, sub+"/"); ok {
			names = append(names, rest)
		}
	}
	return names, nil
}

// byHand is the same directory for the operator's commands, which are other processes.
type byHand struct{ *memory }

// ReadFile implements state.Dir.
func (m byHand) ReadFile(name string) ([]byte, error) {
	b, ok := m.files[name]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return b, nil
}

// WriteFile implements state.Dir.
func (m byHand) WriteFile(name string, data []byte) error {
	m.files[name] = bytes.Clone(data)
	return nil
}

// Remove implements state.Dir.
func (m byHand) Remove(name string) error {
	if _, ok := m.files[name]; !ok {
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
	}
	delete(m.files, name)
	return nil
}

// overrides is for agent.Agent.
func (w *env) overrides(last state.Overrides) (state.Overrides, error) {
	if before, _ := w.meet(readingOverrides); before != nil {
		return last, before
	}
	overrides, err := state.ReadOverrides(&w.memory, last)
	w.model.readOverrides(w, overrides, err)
	return overrides, err
}
