// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/node-cert-agent/node-cert-agent/cluster/api/v1alpha1"
)

func TestWhatIsToBeDoneFirstIsSaid(t *testing.T) {
	says := func(kind string, status metav1.ConditionStatus, reason string) func(*v1alpha1.NodeCertificateStateStatus) {
		return func(s *v1alpha1.NodeCertificateStateStatus) {
			s.Conditions = []v1alpha1.Condition{condition(kind, status, reason)}
		}
	}
	for _, test := range []struct {
		what   string
		ago    time.Duration
		change func(*v1alpha1.NodeCertificateStateStatus)
		want   string
	}{
		{"all is well", time.Minute, nil, "nothing"},
		{"silent", 3 * time.Hour, nil, "the agent is silent"},
		{"refused", 0, says(v1alpha1.Synced, metav1.ConditionFalse, "Refused"), "correct the bundle"},
		{"by hand", 0, says(v1alpha1.Synced, metav1.ConditionFalse, "LocalOverride"), "apply --revert"},
		{"an error", 0, says(v1alpha1.Synced, metav1.ConditionFalse, "Error"), "journalctl -u node-cert-agent "},
		{"a unit", 0, says(v1alpha1.ActionsDone, metav1.ConditionFalse, "Pending"), "wait: "},
		{"a failed unit", 0, says(v1alpha1.ActionsDone, metav1.ConditionFalse, "BreakerOpen"), "systemctl status UNIT"},
		{"stale", 0, says(v1alpha1.ConsumersLive, metav1.ConditionFalse, "Stale"), "a server still uses"},
		{"unreachable", 0, func(s *v1alpha1.NodeCertificateStateStatus) { s.State = "unreachable" }, "node-cert-agent check"},
	} {
		var x explanation
		x.take(state("a", test.ago, test.change))
		if got := x.next(now); !strings.Contains(got, test.want) {
			t.Errorf("%s: %q, want %q", test.what, got, test.want)
		}
	}
	if got := (explanation{}).next(now); !strings.Contains(got, "never reported") {
		t.Errorf("a node without a report: %q", got)
	}
	x := explanation{Requests: []waitingRequest{{Name: "r"}}}
	if got := x.next(now); !strings.HasSuffix(got, "kubectl node-certs approve r") {
		t.Errorf("a node with a request: %q", got)
	}
}

func TestANodeIsExplainedInOneScreen(t *testing.T) {
	var x explanation
	x.take(state("a", 3*time.Minute, func(s *v1alpha1.NodeCertificateStateStatus) {
		s.Conditions = []v1alpha1.Condition{{Type: v1alpha1.Synced, Status: metav1.ConditionFalse, Reason: "Refused",
			Message: "rootCAData: is empty", LastTransitionTime: metav1.NewTime(now)}}
		s.Held = []v1alpha1.StateHeld{{Field: "rootCAData", Certificate: v1alpha1.Digest(strings.Repeat("0a", 32)),
			Until: metav1.NewTime(now), Reason: "it waits"}}
		s.Pending = []v1alpha1.StatePending{{Unit: "x.service", Verb: "reload", Reason: "paused"}}
	}))
	x.Node, x.Joined, x.Blocks = "a", &now, []blocked{{"clients", "lacks sha256:0a"}}
	x.Next = x.next(now)
	var out bytes.Buffer
	x.print(&out, now)
	for _, want := range []string{"node      a\n", "joined    0s ago\n", "reported  3m ago\n", "state     following\n",
		"Synced    False since 2026-11-22T12:00:00Z: Refused, rootCAData: is empty\n",
		"held      rootCAData 0a0a0a0a0a0a0a0a: until 2026-11-22T12:00:00Z, it waits\n",
		"pending   reload x.service: paused\n", "blocks    the NodeBundle clients: it lacks sha256:0a\n",
		"to do     correct the bundle"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it prints\n%s, without %q", out.String(), want)
		}
	}
}
