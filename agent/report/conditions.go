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
	all := []condition{s.syncedCondition(), s.identityCondition(), s.actionsCondition(), s.consumersCondition(),
		s.pausedCondition()}
	for i := range all {
		all[i].Message = cut(all[i].Message)
		all[i].ObservedVersion = printable.Text(s.ControllerConfig.ResourceVersion)
	}
	return all
}

func (s Status) syncedCondition() condition {
	is := func(status conditionStatus, reason, message string) condition {
		return condition{Type: conditionSynced, Status: status, Reason: reason, Message: message}
	}
	switch {
	case s.Error != "":
		return is(no, "Error", s.Error)
	case s.State != Following:
		return is(unclear, "NotFollowing", strings.TrimSuffix(string(s.State)+": "+s.Reason, ": "))
	case s.ConfigMap != nil && s.ConfigMap.State != Following:
		return is(unclear, "ConfigMapNotFollowed", string(s.ConfigMap.State))
	case len(s.Refused) > 0:
		r := s.Refused[0]
		what := strings.TrimSuffix(string(r.Field)+" "+r.Name, " ")
		return is(no, "Refused", fmt.Sprintf("%d refused; %s: %s", len(s.Refused), what, r.Reason))
	}
	if n := s.filesPending(); n > 0 {
		return is(no, "FilesPending", fmt.Sprintf("%d files are not in place", n))
	}
	if o := s.Override; o != nil && o.State == InForce {
		return is(no, "LocalOverride", "content was applied by hand: "+o.Source)
	}
	return is(yes, "InPlace", "every file is as the ControllerConfig asks")
}

func (s Status) filesPending() (n int) {
	for _, f := range s.Files {
		if f.State != InPlace {
			n++
		}
	}
	return n
}

// identityCondition calls an identity that is being renewed a valid one.
func (s Status) identityCondition() condition {
	is := func(status conditionStatus, reason, message string) condition {
		return condition{Type: conditionIdentityValid, Status: status, Reason: reason, Message: message}
	}
	switch i := s.Identity; {
	case i == nil:
		return is(yes, "MaintainedElsewhere", "the agent has no identity of its own")
	case i.State == Active || i.State == Renewing:
		return is(yes, "Valid", "")
	default:
		return is(no, "NotValid", string(i.State))
	}
}

// actionsCondition tells of the unit that stands worst, and of the first of those.
func (s Status) actionsCondition() condition {
	out := condition{Type: conditionActionsDone, Status: yes, Reason: "UpToDate"}
	if len(s.Units) == 0 {
		out.Reason = "NoUnits"
	}
	worst := 0
	for _, u := range s.Units {
		if u.State.Settled() {
			continue
		}
		status, reason, rank := unclear, "Unknown", 1
		switch {
		case !u.BreakerOpened.IsZero() || u.State == BreakerOpen:
			status, reason, rank = no, "BreakerOpen", 4
		case u.State == Refused, u.State == Failed:
			status, reason, rank = no, "Failed", 3
		case u.State != Unknown:
			status, reason, rank = no, "Pending", 2
		}
		if rank > worst {
			message := strings.TrimSuffix(fmt.Sprintf("%s %s: %s", u.Verb, u.Name, u.Reason), ": ")
			worst, out.Status, out.Reason, out.Message = rank, status, reason, message
		}
	}
	return out
}

// consumersCondition does not say why a consumer is not live: what a probe says of that differs each time.
func (s Status) consumersCondition() condition {
	out := condition{Type: conditionConsumersLive, Status: yes, Reason: "NoConsumers"}
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
			out.Status, out.Reason = c.status, c.reason
			if c.status != yes {
				out.Message = strings.TrimSuffix(string(f.Field)+" "+f.Name, " ") + " is " + string(c.use)
			}
			return out
		}
	}
	return out
}

func (s Status) pausedCondition() condition {
	if s.Paused != "" {
		return condition{Type: conditionPaused, Status: yes, Reason: "Paused", Message: s.Paused}
	}
	return condition{Type: conditionPaused, Status: no, Reason: "NotPaused"}
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
