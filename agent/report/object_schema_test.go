// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"maps"
	"os"
	"reflect"
	"slices"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/node-cert-agent/node-cert-agent/agent/liveness"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/cluster/api/v1alpha1"
)

// TestTheStateObjectHasExactlyTheFieldsOfItsKind: the API server drops a field that the schema does not
// have, and an administrator waits in vain for one that nobody fills.
func TestTheStateObjectHasExactlyTheFieldsOfItsKind(t *testing.T) {
	text, err := os.ReadFile("../../packaging/kubernetes/crd/nodecertificatestates.node-cert-agent.io.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema map[string]any `yaml:"openAPIV3Schema"`
				}
			}
		}
	}
	if err := yaml.Unmarshal(text, &crd); err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{}
	status := crd.Spec.Versions[0].Schema.OpenAPIV3Schema["properties"].(map[string]any)["status"]
	schemaFields("status", status.(map[string]any), want)

	s := sample()
	s.Reason, s.ControllerConfig.UID = "why", "uid"
	s.Fields = []plan.Field{plan.RootCAData}
	s.Files[0].Name, s.Files[0].Fingerprints, s.Files[0].State = "r", []string{"0a"}, InPlace
	s.Files[0].Consumers = []Consumer{{State: liveness.Live}}
	s.Held = []Held{{Key: plan.Key{Field: plan.RootCAData, Name: "r"}, Fingerprint: "0a", Until: time.Unix(3e9, 0),
		Reason: "it waits"}}
	s.Identity = &Identity{State: "active", Serial: "1", PublicKey: "0a", Issued: time.Unix(1e9, 0),
		Expires: time.Unix(2e9, 0)}
	now := time.Unix(1e9, 0)
	s.Renewal = &Renewal{Unrenewed: now, Earliest: now, Observed: now}
	o := stateOf(s, "n1", now)
	transitions{}.stamp(o.Status.Conditions, now)
	body := o.encode()
	var object struct{ Status any }
	if err := json.Unmarshal(body, &object); err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	objectFields("status", object.Status, got)
	if !maps.Equal(got, want) {
		t.Errorf("sent are\n%q, the schema has\n%q", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}

	// The Go type, from which the schema is generated and with which others read, has the same JSON.
	var typed v1alpha1.NodeCertificateState
	if err := json.Unmarshal(body, &typed); err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(typed)
	if err != nil {
		t.Fatal(err)
	}
	var sent, read any
	if json.Unmarshal(body, &sent) != nil || json.Unmarshal(again, &read) != nil || !reflect.DeepEqual(sent, read) {
		t.Errorf("sent is\n%s, the Go type makes of it\n%s", body, again)
	}
}

// schemaFields notes the path of every property, lists as what they hold.
func schemaFields(path string, schema map[string]any, into map[string]bool) {
	if items, ok := schema["items"].(map[string]any); ok {
		schemaFields(path, items, into)
	}
	properties, _ := schema["properties"].(map[string]any)
	for name, p := range properties {
		into[path+"."+name] = true
		schemaFields(path+"."+name, p.(map[string]any), into)
	}
}

// objectFields does the same for a value.
func objectFields(path string, value any, into map[string]bool) {
	switch v := value.(type) {
	case []any:
		for _, e := range v {
			objectFields(path, e, into)
		}
	case map[string]any:
		for name, e := range v {
			into[path+"."+name] = true
			objectFields(path+"."+name, e, into)
		}
	}
}
