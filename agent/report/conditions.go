// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/liveness"
	"github.com/node-cert-agent/node-cert-agent/agent/printable"
)

// condition is one line of what kubectl wait asks for. It names the version of the ControllerConfig and no generation:
// kubectl compares a generation with that of the object which the condition is in.
type condition struct {
	Type               conditionType   `json:"type"`
	Status             conditionStatus `json:"status"`
	Reason             string          `json:"reason"`
	Message            string          `json:"message,omitempty"`
	LastTransitionTime time.Time       `json:"lastTransitionTime,omitzero"`
	ObservedVersion    string          `json:"observedVersion,omitempty"`
}

type conditionType string

const (
	conditionSynced        conditionType = "Synced"
	conditionIdentityValid conditionType = "IdentityValid"
	conditionActionsDone   conditionType = "ActionsDone"
	conditionConsumersLive conditionType = "ConsumersLive"
	conditionPaused        conditionType = "Paused"
)

// conditionStatus is a condition's status, in the words of Kubernetes.
type conditionStatus string

const (
	yes     conditionStatus = "True"
	no      conditionStatus = "False"
	unclear conditionStatus = "Unknown"
)

// conditions say how the node stands, without times. They say nothing that changes by itself, because each change is a
// write.
func conditions(s Status) []condition {
	all := []condition{{Type: conditionSynced}, {Type: conditionIdentityValid}, {Type: conditionActionsDone},
		{Type: conditionConsumersLive}, {Type: conditionPaused}}
	for i, judge := range []func() (status conditionStatus, reason, message string){s.syncedCondition,
		s.identityCondition, s.actionsCondition, s.consumersCondition, s.pausedCondition} {
		c := &all[i]
		c.Status, c.Reason, c.Message = judge()
		c.Message, c.ObservedVersion = cut(c.Message), printable.Text(s.ControllerConfig.ResourceVersion)
	}
	return all
}

func (s Status) syncedCondition() (status conditionStatus, reason, message string) {
	switch {
	case s.Error != "":
		return no, "Error", s.Error
	case s.State != Following:
		return unclear, "NotFollowing", strings.TrimSuffix(string(s.State)+": "+s.Reason, ": ")
	case s.ConfigMap != nil && s.ConfigMap.State != Following:
		return unclear, "ConfigMapNotFollowed", string(s.ConfigMap.State)
	case len(s.Refused) > 0:
		r := s.Refused[0]
		what := strings.TrimSuffix(string(r.Field)+" "+r.Name, " ")
		return no, "Refused", fmt.Sprintf("%d refused; %s: %s", len(s.Refused), what, r.Reason)
	}
	pending := 0
	for _, f := range s.Files {
		if f.State != InPlace {
			pending++
		}
	}
	if pending > 0 {
		return no, "FilesPending", fmt.Sprintf("%d files are not in place", pending)
	}
	if o := s.Override; o != nil && o.State == InForce {
		return no, "LocalOverride", "content was applied by hand: " + o.Source
	}
	return yes, "InPlace", "every file is as the ControllerConfig asks"
}

// identityCondition calls an identity that is being renewed a valid one.
func (s Status) identityCondition() (status conditionStatus, reason, message string) {
	switch i := s.Identity; {
	case i == nil:
		return yes, "MaintainedElsewhere", "the agent has no identity of its own"
	case i.State == Active || i.State == Renewing:
		return yes, "Valid", ""
	default:
		return no, "NotValid", string(i.State)
	}
}

// actionsCondition tells of the unit that stands worst, and of the first of those.
func (s Status) actionsCondition() (status conditionStatus, reason, message string) {
	if len(s.Units) == 0 {
		return yes, "NoUnits", ""
	}
	status, reason = yes, "UpToDate"
	worst := 0
	for _, u := range s.Units {
		if u.State.Settled() {
			continue
		}
		its, why, rank := unclear, "Unknown", 1
		switch {
		case !u.BreakerOpened.IsZero() || u.State == BreakerOpen:
			its, why, rank = no, "BreakerOpen", 4
		case u.State == Refused, u.State == Failed:
			its, why, rank = no, "Failed", 3
		case u.State != Unknown:
			its, why, rank = no, "Pending", 2
		}
		if rank > worst {
			worst, status, reason = rank, its, why
			message = strings.TrimSuffix(fmt.Sprintf("%s %s: %s", u.Verb, u.Name, u.Reason), ": ")
		}
	}
	return status, reason, message
}

// consumersCondition does not say why a consumer is not live: what a probe says of that differs each time.
func (s Status) consumersCondition() (status conditionStatus, reason, message string) {
	for _, c := range []struct {
		use    liveness.State
		status conditionStatus
		reason string
	}{
		{liveness.Stale, no, "Stale"}, {liveness.Waiting, unclear, "Waiting"},
		{liveness.Unknown, unclear, "CannotTell"}, {liveness.Live, yes, "Live"},
	} {
		for _, f := range s.Files {
			if f.Use() != c.use {
				continue
			}
			if c.status != yes {
				message = strings.TrimSuffix(string(f.Field)+" "+f.Name, " ") + " is " + string(c.use)
			}
			return c.status, c.reason, message
		}
	}
	return yes, "NoConsumers", ""
}

func (s Status) pausedCondition() (status conditionStatus, reason, message string) {
	if s.Paused != "" {
		return yes, "Paused", s.Paused
	}
	return no, "NotPaused", ""
}

// transition is the status that a condition has, and since when.
type transition struct {
	status conditionStatus
	since  time.Time
}

// transitions are those of a node's conditions.
type transitions map[conditionType]transition

// stamp gives each condition the time of its last transition, which is now if its status is another than before.
func (t transitions) stamp(all []condition, now time.Time) {
	for i, c := range all {
		if last, ok := t[c.Type]; !ok || last.status != c.Status {
			t[c.Type] = transition{c.Status, now.UTC().Truncate(time.Second)}
		}
		all[i].LastTransitionTime = t[c.Type].since
	}
}

// restore takes the times from conditions that were written before this start.
func (t transitions) restore(all []condition) {
	for _, c := range all {
		if !c.LastTransitionTime.IsZero() {
			t[c.Type] = transition{c.Status, c.LastTransitionTime}
		}
	}
}
