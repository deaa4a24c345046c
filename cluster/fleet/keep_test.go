// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func stateObject(status map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "n1"}, "status": status}}
	before, now := metav1.NewTime(noon), metav1.NewTime(noon.Add(time.Hour))
	u.SetManagedFields([]metav1.ManagedFieldsEntry{{Subresource: "status", Time: &before}, {Manager: "other", Time: &now}})
	return u
}

func TestWhatAnAgentReportsIsKept(t *testing.T) {
	all := []any{strings.Repeat("0a", 32), "no digest", strings.Repeat("0b", 31)}
	o, err := new(recent).keepState(stateObject(map[string]any{"state": "following", "heartbeat": "2036-01-01T00:00:00Z",
		"fields": []any{"rootCAData"}, "synced": map[string]any{"uid": "u", "resourceVersion": "7"},
		"files": []any{map[string]any{"field": "rootCAData", "name": "", "use": "stale", "certificates": all}}}))
	if err != nil {
		t.Fatal(err)
	}
	known := pki.Fingerprint([]byte(strings.Repeat("\x0a", 32)))
	r := o.(*kept).node.Report
	f := r.Files[plan.Key{Field: "rootCAData"}]
	if !r.At.Equal(noon) || r.Synced != (plan.ControllerConfig{UID: "u", ResourceVersion: "7"}) ||
		r.Fields[0] != "rootCAData" || f.Use != "stale" || f.Certificates != NewSet([]pki.Fingerprint{known}) {
		t.Errorf("%+v", r)
	}
}

func TestANodeThatSaysNothingHasNotReported(t *testing.T) {
	for sentence, status := range map[string]map[string]any{
		"the approver made the object": nil,
		"the object makes no sense":    {"state": "following", "files": "none"},
	} {
		o, err := new(recent).keepState(stateObject(status))
		if err != nil || o.(*kept).node.Report != nil {
			t.Errorf("%s: %v", sentence, err)
		}
	}
}

func TestANodeIsWhatBothObjectsSay(t *testing.T) {
	node := func(name string) any {
		o, _ := keepNode(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}})
		return o
	}
	report := stateObject(map[string]any{"state": "following"})
	reports, _ := new(recent).keepState(report)
	report = report.DeepCopy()
	report.SetName("machine")
	machine, _ := new(recent).keepState(report)
	got := make(map[string]Node)
	for _, n := range join([]any{node("n1"), node("silent")}, []any{reports, machine}) {
		got[n.Name] = n
	}
	for name, want := range map[string]struct{ joined, reported bool }{
		"n1": {true, true}, "silent": {true, false}, "machine": {false, true},
	} {
		n, ok := got[name]
		if !ok || (n.Labels != nil) != want.joined || (n.Report != nil) != want.reported {
			t.Errorf("%s: %+v", name, n)
		}
	}
}

func TestNodesWithTheSameFilesShareThem(t *testing.T) {
	var r recent
	disk := func(name string, certificates ...any) *Disk {
		u := stateObject(map[string]any{"state": "following", "fields": []any{"rootCAData"},
			"files": []any{map[string]any{"field": "rootCAData", "name": name, "certificates": certificates}}})
		o, err := r.keepState(u)
		if err != nil {
			t.Fatal(err)
		}
		return o.(*kept).node.Report.Disk
	}
	one := strings.Repeat("0a", 32)
	first := disk("", one)
	for range 2 * len(r.disks) {
		if disk("", one) != first {
			t.Fatal("two nodes with the same files hold them twice")
		}
	}
	if disk("") == first || disk("other", one) == first {
		t.Error("nodes with other files share them")
	}
	for i := range 2 * len(r.disks) {
		disk(strings.Repeat("x", i), one)
	}
	if again := disk("", one); again == first || len(again.Files) != 1 {
		t.Errorf("more than %d disks are remembered, or %v is wrong", len(r.disks), again)
	}
}
