// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	jsonv1 "github.com/go-json-experiment/json/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/node-cert-agent/node-cert-agent/cluster/api/v1alpha1"
)

var now = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// state is what a node reported some time ago.
func state(name string, ago time.Duration, change func(*v1alpha1.NodeCertificateStateStatus)) v1alpha1.NodeCertificateState {
	at := metav1.NewTime(now.Add(-ago))
	s := v1alpha1.NodeCertificateState{ObjectMeta: metav1.ObjectMeta{Name: name,
		ManagedFields: []metav1.ManagedFieldsEntry{{Subresource: "status", Time: &at}}}}
	s.Status.State, s.Status.Synced.ResourceVersion = "following", "7"
	if change != nil {
		change(&s.Status)
	}
	return s
}

func condition(kind string, status metav1.ConditionStatus, reason string) v1alpha1.Condition {
	return v1alpha1.Condition{Type: kind, Status: status, Reason: reason}
}

func TestNodesAreShownByNameAndThenInOneLine(t *testing.T) {
	troubled := statusOf(state("a", 3*time.Minute, func(s *v1alpha1.NodeCertificateStateStatus) {
		s.Counts.Held, s.Breaker = 2, &v1alpha1.StateBreaker{Unit: "x.service"}
		s.Conditions = []v1alpha1.Condition{condition(v1alpha1.Synced, metav1.ConditionFalse, "Refused"),
			condition(v1alpha1.Paused, metav1.ConditionTrue, "Paused"),
			condition(v1alpha1.ConsumersLive, metav1.ConditionUnknown, "CannotTell")}
	}))
	s := fleetStatus{Nodes: []nodeStatus{troubled, {Name: "b"}, statusOf(state("c\x1b[2J", time.Hour, nil))},
		Versions: map[string]int{"7": 1, "6": 1}, Bundles: []bundleStatus{{Name: "clients", Field: "rootCAData", Nodes: "1/3",
			Held: 1, Reason: "RemovalBlocked"}}}
	var out bytes.Buffer
	s.print(&out, now)
	want := `NODE      STATE           SYNCED   VERSION  HELD  PENDING  BREAKER    REPORTED
a         following       Refused  7        2     0        x.service  3m
b         never reported  -        -        -     -        -          -
c\x1b[2J  following       True     7        0     0        -          60m

3 nodes: 2 follow, 1 never reported, 1 hold removals, 1 refuse a field, 0 have a consumer that is not live, 1 are paused, ` +
		`1 have a breaker open
version 6: 1 nodes
version 7: 1 nodes
the oldest report is of c\x1b[2J, 60m ago
clients (rootCAData): 1/3 nodes have all certificates; 1 of them no source has any more: RemovalBlocked
`
	if out.String() != want {
		t.Errorf("it prints\n%s, want\n%s", out.String(), want)
	}
}

func TestANodeBundleIsToldOfWhileSomebodyWaitsForIt(t *testing.T) {
	for counts, want := range map[v1alpha1.Counts]bool{{Nodes: "3/3"}: false, {Nodes: ""}: false, {Nodes: "2/3"}: true,
		{Nodes: "3/3", Held: 1}: true} {
		if _, got := rotating(v1alpha1.NodeBundle{Status: v1alpha1.NodeBundleStatus{Counts: counts}}); got != want {
			t.Errorf("%+v: %v", counts, got)
		}
	}
}

func TestASummaryHasAllThatStatusShows(t *testing.T) {
	o := state("a", time.Minute, func(s *v1alpha1.NodeCertificateStateStatus) {
		s.Counts = v1alpha1.StateCounts{Files: 1, Held: 1, Pending: 1}
		s.Breaker = &v1alpha1.StateBreaker{Unit: "x.service"}
		s.Conditions = []v1alpha1.Condition{condition(v1alpha1.Synced, metav1.ConditionFalse, "Refused")}
		s.Files = []v1alpha1.StateFile{{Field: "rootCAData", Certificates: []v1alpha1.Digest{"00"}}}
		s.Held = []v1alpha1.StateHeld{{Field: "rootCAData"}}
		s.Pending = []v1alpha1.StatePending{{Unit: "x.service"}}
	})
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	var s summary
	if err := jsonv2.Unmarshal(text, &s, jsonv1.DefaultOptionsV1()); err != nil {
		t.Fatal(err)
	}
	got, _ := json.Marshal(statusOf(s.state()))
	if want, _ := json.Marshal(statusOf(o)); !bytes.Equal(got, want) {
		t.Errorf("from a summary: %s, want %s", got, want)
	}
	if r := s.state().Status; r.Files != nil || r.Held != nil || r.Pending != nil {
		t.Errorf("the lists were read: %+v", r)
	}
}

// A server that gives one object on a page has them all asked for; what it does not know is no NodeBundle.
func TestAllPagesAreRead(t *testing.T) {
	pages := map[string][]any{nodes: {map[string]any{"metadata": map[string]any{"name": "new"}}},
		states: {state("a", time.Minute, nil), state("b", time.Minute, nil)}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		all, known := pages[r.URL.Path]
		if r.URL.Query().Get("limit") != "500" || r.URL.Path == nodes && !strings.Contains(r.Header.Get("Accept"), "PartialObject") {
			t.Errorf("it asks for %s with %q", r.URL, r.Header.Get("Accept"))
		}
		if !known {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`))
			return
		}
		at := map[string]int{"": 0, "second": 1}[r.URL.Query().Get("continue")]
		next := map[bool]string{true: "second"}[at+1 < len(all)]
		_ = json.NewEncoder(w).Encode(map[string]any{"metadata": map[string]any{"continue": next}, "items": all[at : at+1]})
	}))
	defer server.Close()
	to, err := newCluster(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	s, err := readStatus(t.Context(), to)
	if err != nil || len(s.Nodes) != 3 || s.Versions["7"] != 2 || s.Nodes[2].State != "" || s.Bundles != nil {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestWhatExpiresSoonIsFoundTheEarliestFirst(t *testing.T) {
	o := state("a", 0, func(s *v1alpha1.NodeCertificateStateStatus) {
		s.Identity = &v1alpha1.StateIdentity{Expires: metav1.NewTime(now.Add(36 * time.Hour))}
		s.Files = []v1alpha1.StateFile{{Field: "rootCAData", EarliestExpiry: metav1.NewTime(now.Add(-time.Hour))},
			{Field: "imageRegistryBundleData", Name: "r:5000", EarliestExpiry: metav1.NewTime(now.Add(9000 * time.Hour))},
			{Field: "additionalTrustBundle"}}
	})
	if got := expiring(o, now, 48*time.Hour); len(got) != 2 {
		t.Errorf("within two days: %v", got)
	}
	all := expiring(o, now, 0)
	if earliest(all[1], all[0]) >= 0 || earliest(all[2], all[0]) <= 0 {
		t.Errorf("the order of %v", all)
	}
	var out bytes.Buffer
	printCertificates(&out, all, now)
	for _, want := range []string{"2026-11-24T00:00:00Z  36h            a     the agent's identity     -\n",
		"2026-11-22T11:00:00Z  expired        a     rootCAData               -\n",
		"a     imageRegistryBundleData  r:5000\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it prints\n%s, without %q", out.String(), want)
		}
	}
}

func TestOutputIsForProgramsIfAskedFor(t *testing.T) {
	for text, want := range map[string]string{"json": "{\n  \"a\": 1\n}\n", "yaml": "a: 1\n"} {
		var form output
		var out bytes.Buffer
		if err := form.Set(text); err != nil {
			t.Fatal(err)
		}
		if err := form.print(&out, map[string]int{"a": 1}, nil); err != nil || out.String() != want {
			t.Errorf("%s: %v, %q", text, err, out.String())
		}
	}
}
