// SPDX-License-Identifier: Apache-2.0

package state

import (
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
)

// Memory is State with its store behind it: the one way in which what is remembered changes. One goroutine uses it.
type Memory struct {
	store *Store
	state State
}

// NewMemory is empty until Load.
func NewMemory(s *Store) *Memory { return &Memory{store: s} }

// Load is that of the store.
func (m *Memory) Load() (lost string, err error) {
	m.state, lost, err = m.store.Load()
	if m.state.Units == nil {
		m.state.Units = make(map[string]unitplan.Loaded)
	}
	return lost, err
}

// State is what is remembered now. The caller changes nothing in it.
func (m *Memory) State() State { return m.state }

// Note changes what is remembered. It becomes durable with whatever is saved next.
func (m *Memory) Note(change func(*State)) { change(&m.state) }

// Save makes durable what was noted.
func (m *Memory) Save() error { return m.store.Save(m.state) }

// Update makes a change durable, or undoes it. The change has to replace maps and lists, not what is in them.
func (m *Memory) Update(change func(*State)) error {
	before := m.state
	change(&m.state)
	err := m.Save()
	if err != nil {
		m.state = before
	}
	return err
}

// Loaded makes what a unit has loaded durable. If that fails it is remembered for as long as the agent lives, and
// saved with whatever is saved next.
func (m *Memory) Loaded(unit string, l unitplan.Loaded) error {
	m.Note(func(s *State) { s.Units[unit] = l })
	return m.Save()
}

// Keep makes entries durable as the last good version: see Store.Keep.
func (m *Memory) Keep(config plan.ControllerConfig, entries []plan.Entry) error {
	return m.store.Keep(&m.state, config, entries)
}

// Content gives the bytes of a remembered file, checked against its digest.
func (m *Memory) Content(r Remembered) ([]byte, error) { return m.store.Content(r) }
