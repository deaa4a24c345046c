// SPDX-License-Identifier: Apache-2.0

package approver

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestAMachineIsTheNodeThatItRefersToOrWillBe(t *testing.T) {
	for sentence, c := range map[string]struct {
		machine string
		want    bool
	}{
		"the reference":               {`{"status":{"nodeRef":{"name":"worker-1"}}}`, true},
		"another reference":           {`{"status":{"nodeRef":{"name":"worker-2"}}}`, false},
		"its name inside the cluster": {`{"status":{"addresses":[{"type":"InternalIP","address":"10.0.0.1"},{"type":"InternalDNS","address":"worker-1"}]}}`, true},
		"a name, and another joined":  {`{"status":{"nodeRef":{"name":"worker-2"},"addresses":[{"type":"InternalDNS","address":"worker-1"}]}}`, false},
		"an empty reference": {`{"status":{"nodeRef":{},"addresses":[{"type":"InternalDNS","address":"worker-1"}]}}`,
			true},
		"its name outside": {`{"status":{"addresses":[{"type":"ExternalDNS","address":"worker-1"},{"type":"InternalIP","address":"worker-1"}]}}`, false},
		"the start of the name": {`{"status":{"addresses":[{"type":"InternalDNS","address":"worker-1.example.org"}]}}`,
			false},
		"the machine's own name": {`{"metadata":{"name":"worker-1"}}`, false},
		"being deleted":          {`{"metadata":{"deletionTimestamp":"2026-11-21T10:00:00Z"},"status":{"nodeRef":{"name":"worker-1"}}}`, false},
		"nothing":                {`{}`, false},
		"not a machine":          {`{"status":{"addresses":"worker-1"}}`, false},
	} {
		var u unstructured.Unstructured
		if err := json.Unmarshal([]byte(c.machine), &u.Object); err != nil {
			t.Fatal(err)
		}
		m, err := readMachine(u)
		if got := err == nil && m.is("worker-1"); got != c.want {
			t.Errorf("%s: %v, %v", sentence, got, err)
		}
	}
}
