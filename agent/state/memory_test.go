// SPDX-License-Identifier: Apache-2.0

package state_test

import (
	"errors"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/agent/agenttest"
	"github.com/node-cert-agent/node-cert-agent/agent/state"
	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
)

func TestAnUpdateThatCannotBeSavedIsUndone(t *testing.T) {
	dir := agenttest.NewDir()
	m := state.NewMemory(state.Open(dir))
	if _, err := m.Load(); err != nil {
		t.Fatal(err)
	}
	m.Note(func(s *state.State) { s.ControllerConfig.UID = "noted" })
	dir.Fail = func(string, string) error { return errors.New("the disk is full") }
	claim := func(s *state.State) { s.Owned = full().Owned }
	if err := m.Update(claim); err == nil || len(m.State().Owned) != 0 {
		t.Errorf("%v, and %d claims are remembered", err, len(m.State().Owned))
	}
	if err := m.Loaded("a.service", unitplan.Loaded{Unknown: true}); err == nil || !m.State().Units["a.service"].Unknown {
		t.Errorf("%v, and of the unit is remembered %+v", err, m.State().Units["a.service"])
	}
	dir.Fail = func(string, string) error { return nil }
	if err := m.Update(claim); err != nil {
		t.Fatal(err)
	}
	again := state.NewMemory(state.Open(dir))
	lost, err := again.Load()
	if s := again.State(); err != nil || lost != "" || len(s.Owned) != 1 || s.ControllerConfig.UID != "noted" ||
		!s.Units["a.service"].Unknown {
		t.Errorf("loaded %+v, lost %q, %v", s, lost, err)
	}
}
