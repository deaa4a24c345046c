// SPDX-License-Identifier: Apache-2.0

// Package expiry decides which end of certificates a Machine of Cluster API shall state: the first that nobody on its
// host will renew. KubeadmControlPlane replaces a Machine before that, if its rollout.before says so.
//
// The decision is pure. It changes nothing on doubt: not for a node that is silent, not by what an earlier host of the
// same name reported, and never where somebody else wrote the annotation. If the host renews every pair, the Machine
// states the first end of all. Without an annotation the Machine would fall back to the one of its KubeadmConfig, which
// KubeadmControlPlane writes once, of the API server's certificate, and never again: it would replace a Machine whose
// certificates are new. What the host fails to renew comes near by that date, and then the Machine is replaced.
//
// Sources: sigs.k8s.io/cluster-api v1.14.2, core/reconcilers/machine/machine_controller_phases.go
// (reconcileCertificateExpiry), controlplane/kubeadm/reconcilers/kubeadmcontrolplane/kubeadmcontrolplane_controller.go
// (reconcileCertificateExpiries), util/collections/machine_filters.go (ShouldRolloutBefore);
// docs/decisions/0046-cluster-api.md.
package expiry

import (
	"fmt"
	"time"

	"github.com/node-cert-agent/node-cert-agent/cluster/api/v1alpha1"
)

// Annotation of a Machine is the date, in RFC 3339. One that cannot be parsed stops Cluster API's work on the Machine.
const Annotation = "machine.cluster.x-k8s.io/certificates-expiry"

// Action is what to do to the annotation.
type Action string

// The actions.
const (
	Leave  Action = ""
	Set    Action = "Set"
	Remove Action = "Remove"
)

// The reasons for which nothing is done that somebody should know.
const (
	// NoState: the node has no NodeCertificateState.
	NoState = "NoState"
	// StateStale: the node's agent has not reported, or not looked at its pairs, for too long.
	StateStale = "StateStale"
	// Unreadable: the node's agent states what is no date, or what has no form in RFC 3339.
	Unreadable = "StateUnreadable"
	// Foreign: somebody else wrote the annotation.
	Foreign = "AnnotationOfOthers"
)

// Machine is what of a Machine matters.
type Machine struct {
	// Created is when it was made, by the management cluster's clock.
	Created time.Time
	// Value is the annotation, empty if there is none. Ours tells whether we wrote it.
	Value string
	Ours  bool
}

// Report is what the agent of its node says.
type Report struct {
	// Written is when, by the clock of the workload cluster; Heartbeat the same by that of the node.
	Written, Heartbeat time.Time
	// Renewal is nil if the agent says nothing about pairs.
	Renewal *v1alpha1.StateRenewal
}

// Input is what a decision is made of.
type Input struct {
	Now     time.Time
	Machine Machine
	// Report is nil if there is none.
	Report *Report
	// Shared is the end of the pair that a new Machine would get again, from a Secret; zero if there is none.
	Shared time.Time
	// StaleAfter is how old a report may be.
	StaleAfter time.Duration
}

// Decision is what to do. Reason is empty if nobody needs to know why nothing is.
type Decision struct {
	Action Action
	// Value is what to set.
	Value  string
	Reason string
	// Fact is the reason in a sentence.
	Fact string
}

// Decide decides about one Machine.
func Decide(in Input) Decision {
	m, r := in.Machine, in.Report
	switch {
	case r == nil:
		return Decision{Reason: NoState, Fact: "its node has no NodeCertificateState"}
	case r.Written.Before(m.Created): // a host of the same name that the Machine replaces
		return Decision{}
	case in.Now.Sub(r.Written) > in.StaleAfter:
		return Decision{Reason: StateStale, Fact: "the agent of its node last reported at " + stamp(r.Written)}
	case r.Renewal != nil && r.Heartbeat.Sub(r.Renewal.ObservedTime.Time) > in.StaleAfter:
		return Decision{Reason: StateStale,
			Fact: "the agent of its node last looked at the certificates at " + stamp(r.Renewal.ObservedTime.Time)}
	}
	date := first(r.Renewal)
	if year := date.UTC().Year(); year < 0 || year > 9999 { // in UTC: RFC 3339 has no form for it
		return Decision{Reason: Unreadable, Fact: fmt.Sprintf("the agent of its node states the year %d", year)}
	}
	switch foreign := m.Value != "" && !m.Ours; {
	case date.IsZero() && m.Ours:
		return Decision{Action: Remove}
	case date.IsZero() || m.Value == stamp(date):
		return Decision{}
	case foreign:
		return Decision{Reason: Foreign,
			Fact: "somebody else set " + Annotation + "; it would be " + stamp(date)}
	case !m.Ours && date.Equal(in.Shared.Truncate(time.Second)):
		// A new Machine would end as soon, and be replaced again, without end.
		return Decision{}
	}
	return Decision{Action: Set, Value: stamp(date)}
}

// first is the end to state, zero if there is none.
func first(r *v1alpha1.StateRenewal) time.Time {
	switch {
	case r == nil:
		return time.Time{}
	case !r.UnrenewedNotAfter.IsZero():
		return r.UnrenewedNotAfter.Time
	}
	return r.EarliestNotAfter.Time
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
