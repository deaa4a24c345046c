// SPDX-License-Identifier: Apache-2.0

package controllerconfig_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane/controllerconfig"
)

func TestTheTypicalObjectWeighsWhatARealOneDoes(t *testing.T) {
	n := len(controllerconfig.Object(controllerconfig.OpenShift, controllerconfig.Typical(20)))
	t.Logf("%d bytes", n)
	if n < 95_000 || n > 110_000 {
		t.Errorf("%d bytes, want about 102 KB", n)
	}
}

func TestBothKindsCarryTheSameFields(t *testing.T) {
	want := controllerconfig.Typical(2)
	for _, api := range []controllerconfig.API{controllerconfig.OpenShift, controllerconfig.Small} {
		var object struct{ Spec controllerconfig.Spec }
		if err := json.Unmarshal(controllerconfig.Object(api, want), &object); err != nil {
			t.Fatal(err)
		}
		got, _ := json.Marshal(object.Spec)
		if spec, _ := json.Marshal(want); !bytes.Equal(got, spec) {
			t.Errorf("%s: the fields do not come back as they were given", api.Group)
		}
	}
}
