// SPDX-License-Identifier: Apache-2.0

package report

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/liveness"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
)

// good is the status of a node that lacks nothing.
func good() Status {
	return Status{State: Following, ControllerConfig: plan.ControllerConfig{ResourceVersion: "42"},
		Identity: &Identity{State: Active, Serial: "0a"},
		Files: []File{{Key: plan.Key{Field: plan.RootCAData}, State: InPlace,
			Consumers: []Consumer{{State: liveness.Live, Reason: "differs each time"}}}},
		Units: []Unit{{Name: "a.service", Verb: unitplan.Reload, State: UpToDate}}}
}

func TestConditionsSayWhatTheStatusSays(t *testing.T) {
	unit := func(state UnitState) func(*Status) {
		return func(s *Status) { s.Units[0].State, s.Units[0].Reason = state, "why" }
	}
	identity := func(state IdentityState) func(*Status) { return func(s *Status) { s.Identity.State = state } }
	use := func(state liveness.State) func(*Status) {
		return func(s *Status) { s.Files[0].Consumers[0].State = state }
	}
	for sentence, c := range map[string]struct {
		change func(*Status)
		of     conditionType
		want   string
	}{
		"all is well":         {nil, conditionSynced, "True InPlace every file is as the ControllerConfig asks"},
		"the last turn fails": {func(s *Status) { s.Error = "disk full" }, conditionSynced, "False Error disk full"},
		"nothing is read": {func(s *Status) { s.State, s.Reason = "no object", "404" }, conditionSynced,
			"Unknown NotFollowing no object: 404"},
		"nothing is read, for no reason": {func(s *Status) { s.State = "starting" }, conditionSynced,
			"Unknown NotFollowing starting"},
		"the ConfigMap is not read": {func(s *Status) { s.ConfigMap = &Source{State: "forbidden"} }, conditionSynced,
			"Unknown ConfigMapNotFollowed forbidden"},
		"the ConfigMap is read": {func(s *Status) { s.ConfigMap = &Source{State: Following} }, conditionSynced,
			"True InPlace every file is as the ControllerConfig asks"},
		"a field is refused": {func(s *Status) {
			s.Refused = []plan.Refusal{{Key: plan.Key{Field: plan.RootCAData}, Reason: "holds a key"}, {}}
		}, conditionSynced, "False Refused 2 refused; rootCAData: holds a key"},
		"a file is not written yet": {func(s *Status) { s.Files[0].State = Pending }, conditionSynced,
			"False FilesPending 1 files are not in place"},
		"an operator overrides it": {func(s *Status) { s.Override = &Override{Source: "me", State: InForce} },
			conditionSynced, "False LocalOverride content was applied by hand: me"},
		"an override is overtaken": {func(s *Status) { s.Override = &Override{Source: "me", State: Overtaken} },
			conditionSynced, "True InPlace every file is as the ControllerConfig asks"},
		"a removal is held": {func(s *Status) { s.Held = []Held{{Reason: "waits"}} }, conditionSynced,
			"True InPlace every file is as the ControllerConfig asks"},

		"the identity works":         {nil, conditionIdentityValid, "True Valid"},
		"the identity is renewed":    {identity(Renewing), conditionIdentityValid, "True Valid"},
		"the identity is doubted":    {identity("suspect"), conditionIdentityValid, "False NotValid suspect"},
		"there is none":              {identity("no credential"), conditionIdentityValid, "False NotValid no credential"},
		"somebody else maintains it": {func(s *Status) { s.Identity = nil }, conditionIdentityValid, "True MaintainedElsewhere the agent has no identity of its own"},

		"units are up to date":    {nil, conditionActionsDone, "True UpToDate"},
		"there are no units":      {func(s *Status) { s.Units = nil }, conditionActionsDone, "True NoUnits"},
		"a unit does not run":     {unit(NotRunning), conditionActionsDone, "True UpToDate"},
		"a unit is pending":       {unit(UnitPending), conditionActionsDone, "False Pending reload a.service: why"},
		"a unit waits for a word": {unit(Paused), conditionActionsDone, "False Pending reload a.service: why"},
		"a unit takes long":       {unit(Overdue), conditionActionsDone, "False Pending reload a.service: why"},
		"a unit failed":           {unit(Failed), conditionActionsDone, "False Failed reload a.service: why"},
		"a unit may not":          {unit(Refused), conditionActionsDone, "False Failed reload a.service: why"},
		"a unit failed too often": {unit(BreakerOpen), conditionActionsDone, "False BreakerOpen reload a.service: why"},
		"nobody can say":          {unit(Unknown), conditionActionsDone, "Unknown Unknown reload a.service: why"},
		"the worst of several counts": {func(s *Status) {
			s.Units = append(s.Units, Unit{Name: "b", Verb: unitplan.Reload, State: Failed}, Unit{Name: "c", State: Unknown})
		}, conditionActionsDone, "False Failed reload b"},
		"an open breaker counts in any state": {func(s *Status) {
			s.Units[0].State, s.Units[0].BreakerOpened = UnitPending, time.Unix(1, 0)
		}, conditionActionsDone, "False BreakerOpen reload a.service"},

		"consumers are live":     {nil, conditionConsumersLive, "True Live"},
		"there are no consumers": {func(s *Status) { s.Files[0].Consumers = nil }, conditionConsumersLive, "True NoConsumers"},
		"a consumer is stale":    {use(liveness.Stale), conditionConsumersLive, "False Stale rootCAData is stale"},
		"a consumer has time":    {use(liveness.Waiting), conditionConsumersLive, "Unknown Waiting rootCAData is waiting"},
		"a consumer is silent":   {use(liveness.Unknown), conditionConsumersLive, "Unknown CannotTell rootCAData is unknown"},

		"nothing is paused":  {nil, conditionPaused, "False NotPaused"},
		"the host is paused": {func(s *Status) { s.Paused = "maintenance" }, conditionPaused, "True Paused maintenance"},
	} {
		s := good()
		if c.change != nil {
			c.change(&s)
		}
		for _, got := range conditions(s) {
			if got.Type != c.of {
				continue
			}
			if text := strings.TrimSuffix(string(got.Status)+" "+got.Reason+" "+got.Message, " "); text != c.want {
				t.Errorf("%s: %s is %q, want %q", sentence, c.of, text, c.want)
			}
			if got.ObservedVersion != "42" {
				t.Errorf("%s: observed is %q", sentence, got.ObservedVersion)
			}
		}
	}
}

func TestEveryConditionIsThereOnceAndBounded(t *testing.T) {
	s := good()
	s.Error, s.Paused, s.Units[0].State = strings.Repeat("x", 5000), strings.Repeat("y", 5000), Failed
	s.Units[0].Reason = strings.Repeat("z", 5000)
	seen := map[conditionType]bool{}
	for _, c := range conditions(s) {
		if seen[c.Type] || len(c.Message) > maxReason || !regexp.MustCompile(`^[A-Z][A-Za-z]*$`).MatchString(c.Reason) {
			t.Errorf("%+v", c)
		}
		seen[c.Type] = true
	}
	if len(seen) != 5 {
		t.Errorf("conditions are %v", seen)
	}
}

// TestWhatAProbeSaysIsNoNewCondition: it names a port that differs each time, and each change is a write.
func TestWhatAProbeSaysIsNoNewCondition(t *testing.T) {
	for _, state := range []liveness.State{liveness.Live, liveness.Stale, liveness.Unknown, liveness.Waiting} {
		s, again := good(), good()
		s.Files[0].Consumers[0].State, again.Files[0].Consumers[0].State = state, state
		again.Files[0].Consumers[0].Reason = "read tcp 127.0.0.1:40001"
		again.Identity.Reason = "next try in a minute"
		a, b := conditions(s), conditions(again)
		for i := range a {
			if a[i] != b[i] {
				t.Errorf("%s: %+v became %+v", state, a[i], b[i])
			}
		}
	}
}

func TestATransitionIsWhenTheStatusChanged(t *testing.T) {
	begin := time.Date(2026, 11, 22, 12, 0, 0, 500, time.FixedZone("", 3600))
	since := transitions{}
	for minute, step := range []struct {
		status conditionStatus
		reason string
		want   int
	}{{yes, "a", 0}, {yes, "b", 0}, {no, "b", 2}, {no, "b", 2}, {unclear, "b", 4}, {yes, "a", 5}} {
		now := begin.Add(time.Duration(minute) * time.Minute)
		all := []condition{{Type: conditionSynced, Status: step.status, Reason: step.reason}}
		since.stamp(all, now)
		want := begin.Add(time.Duration(step.want) * time.Minute).UTC().Truncate(time.Second)
		if got := all[0].LastTransitionTime; got != want {
			t.Errorf("minute %d: since %v, want %v", minute, got, want)
		}
	}
}
