// SPDX-License-Identifier: Apache-2.0

package state_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/agent/agenttest"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/state"
	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
)

func entry(name, data string) plan.Entry {
	return plan.Entry{Key: plan.Key{Field: plan.ImageRegistryBundleData, Name: name}, Data: []byte(data),
		Digest: plan.DigestOf([]byte(data))}
}

func full() state.State {
	e := entry("r:5000", "x")
	return state.State{
		Memory: plan.Memory{
			Owned: map[string]plan.Claim{"/etc/docker/certs.d/r:5000/ca.crt": {Key: e.Key,
				Digests: []plan.Digest{e.Digest, {1}}}},
		},
		Units: map[string]unitplan.Loaded{"a.service": {Inputs: plan.Digest{7}, Boot: "b", Invocation: "i"},
			"b.service": {Unknown: true}},
		ControllerConfig: plan.ControllerConfig{UID: "u", ResourceVersion: "7"},
		LastGood:         []state.Remembered{{Key: e.Key, Digest: e.Digest}},
	}
}

func TestWhatIsSavedIsLoaded(t *testing.T) {
	dir := agenttest.NewDir()
	want := full()
	if err := state.Open(dir).Save(want); err != nil {
		t.Fatal(err)
	}
	got, lost, err := state.Open(dir).Load()
	if err != nil || lost != "" || !reflect.DeepEqual(got, want) {
		t.Errorf("loaded %+v, lost %q, %v", got, lost, err)
	}
}

func TestStateThatCannotBeTrustedIsSetAsideAndNothingIsRemembered(t *testing.T) {
	dir := agenttest.NewDir()
	if err := state.Open(dir).Save(full()); err != nil {
		t.Fatal(err)
	}
	good, _ := dir.ReadFile("state.json")
	for sentence, bad := range map[string]string{
		"an empty file":      "",
		"a torn file":        string(good[:len(good)/2]),
		"an altered digest":  strings.Replace(string(good), "r:5000", "r:5001", 1),
		"a newer version":    strings.Replace(string(good), `"version":2`, `"version":3`, 1),
		"an older version":   strings.Replace(string(good), `"version":2`, `"version":1`, 1),
		"no checksum":        `{"version":1,"body":{}}`,
		"something else":     `[]`,
		"a body of its own":  `{"version":1,"sha256":"` + plan.DigestOf([]byte(`[]`)).String() + `","body":[]}`,
		"binary zeros as by": strings.Repeat("\x00", len(good)),
	} {
		t.Run(sentence, func(t *testing.T) {
			_ = dir.WriteFile("state.json", []byte(bad))
			got, lost, err := state.Open(dir).Load()
			if err != nil || lost == "" || !reflect.DeepEqual(got, state.State{}) {
				t.Errorf("loaded %+v, lost %q, %v", got, lost, err)
			}
			if kept, err := dir.ReadFile("state.json.bad"); err != nil || string(kept) != bad {
				t.Errorf("set aside %q, %v", kept, err)
			}
			if _, err := dir.ReadFile("state.json"); err == nil {
				t.Error("the bad file is still in place")
			}
		})
	}
}

func TestADirectoryThatCannotBeReadIsAnErrorAndNotALoss(t *testing.T) {
	dir := agenttest.NewDir()
	dir.Fail = func(string, string) error { return errors.New("input/output error") }
	if _, lost, err := state.Open(dir).Load(); err == nil || lost != "" {
		t.Errorf("lost %q, %v", lost, err)
	}
}

func TestSavingTheSameStateTwiceWritesOnce(t *testing.T) {
	dir, writes := agenttest.NewDir(), 0
	dir.Fail = func(op, _ string) error {
		if op == "write" {
			writes++
		}
		return nil
	}
	s := state.Open(dir)
	for range 3 {
		if err := s.Save(full()); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := s.Load(); err != nil {
		t.Fatal(err)
	}
	if err := s.Save(full()); err != nil || writes != 1 {
		t.Errorf("%d writes, %v", writes, err)
	}
}

func TestTheLastGoodContentIsKeptAndOldContentDropped(t *testing.T) {
	dir := agenttest.NewDir()
	s, st := state.Open(dir), state.State{}
	if err := s.Keep(&st, plan.ControllerConfig{ResourceVersion: "1"}, []plan.Entry{entry("a", "one"), entry("b", "two"),
		entry("c", "one")}); err != nil {
		t.Fatal(err)
	}
	if err := s.Keep(&st, plan.ControllerConfig{ResourceVersion: "2"}, []plan.Entry{entry("a", "one"),
		entry("b", "three")}); err != nil {
		t.Fatal(err)
	}
	if names, _ := dir.List("blobs"); len(names) != 2 {
		t.Errorf("%d blobs are kept", len(names))
	}
	again := state.Open(dir)
	st, _, _ = again.Load()
	var got []string
	for _, r := range st.LastGood {
		data, err := again.Content(r)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, r.Name+"="+string(data))
	}
	if !reflect.DeepEqual(got, []string{"a=one", "b=three"}) || st.ControllerConfig.ResourceVersion != "2" {
		t.Errorf("remembered %q of version %s", got, st.ControllerConfig.ResourceVersion)
	}
	_ = dir.WriteFile("blobs/"+st.LastGood[0].Digest.String(), []byte("altered"))
	if _, err := again.Content(st.LastGood[0]); err == nil {
		t.Error("altered content was given out")
	}
}

func TestContentUnderAnotherDigestIsNotKept(t *testing.T) {
	dir := agenttest.NewDir()
	s, st := state.Open(dir), state.State{}
	good, bad := entry("a", "one"), entry("a", "two")
	if err := s.Keep(&st, plan.ControllerConfig{}, []plan.Entry{good}); err != nil {
		t.Fatal(err)
	}
	bad.Digest = plan.Digest{7}
	if err := s.Keep(&st, plan.ControllerConfig{}, []plan.Entry{bad}); err == nil {
		t.Error("it was kept")
	}
	st, _, _ = s.Load()
	if data, err := s.Content(st.LastGood[0]); err != nil || string(data) != "one" {
		t.Errorf("the last good content is %q, %v", data, err)
	}
}

func TestANewVersionWithTheSameContentWritesNothing(t *testing.T) {
	dir := agenttest.NewDir()
	s, st := state.Open(dir), state.State{}
	entries := []plan.Entry{entry("a", "one")}
	if err := s.Keep(&st, plan.ControllerConfig{ResourceVersion: "1"}, entries); err != nil {
		t.Fatal(err)
	}
	dir.Fail = func(op, name string) error { return errors.New(op + " " + name) }
	if err := s.Keep(&st, plan.ControllerConfig{ResourceVersion: "2"}, entries); err != nil {
		t.Errorf("touched the disk: %v", err)
	}
}

func TestAnOverrideOfWhichAPartCannotBeReadCounts(t *testing.T) {
	dir := agenttest.NewDir()
	said := state.Overrides{Applied: &state.Applied{ID: "1"}, Pause: &state.Pause{Reason: "freeze"}}
	if err := state.SetOverrides(dir, said); err != nil {
		t.Fatal(err)
	}
	if err := dir.WriteFile("operator/applied.json", []byte("{")); err != nil {
		t.Fatal(err)
	}
	w, err := state.ReadOverrides(dir, state.Overrides{Applied: &state.Applied{ID: "0"}})
	if err == nil || w.Applied == nil || w.Applied.ID != "0" || w.Pause == nil || w.Pause.Reason != "freeze" {
		t.Errorf("heard %+v, %v", w, err)
	}
	dir.Fail = func(_, name string) error {
		if name == "operator/pause.json" {
			return errors.New("input/output error")
		}
		return nil
	}
	if err := state.SetOverrides(dir, state.Overrides{Applied: said.Applied}); err != nil {
		t.Fatal(err)
	}
	w, err = state.ReadOverrides(dir, state.Overrides{})
	if err == nil || w.Applied == nil || w.Applied.ID != "1" || w.Pause != nil {
		t.Errorf("heard %+v, %v", w, err)
	}
}
