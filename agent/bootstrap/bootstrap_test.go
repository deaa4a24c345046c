// SPDX-License-Identifier: Apache-2.0

package bootstrap_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/agent/bootstrap"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/secret"
)

func TestNoFormOfACredentialHoldsItsContent(t *testing.T) {
	id := bootstrap.ID{Name: "10-token", Digest: plan.DigestOf([]byte("geheim"))}
	c := bootstrap.Credential{ID: id, Content: secret.New([]byte("geheim"))}
	text, err := json.Marshal(c)
	if want := `{"name":"10-token","digest":"` + id.Digest.String() + `"}`; err != nil || string(text) != want {
		t.Errorf("as JSON it is %s, %v; want %s", text, err, want)
	}
	for _, verb := range []string{"%v", "%+v", "%#v"} {
		got := fmt.Sprintf(verb, c)
		if strings.Contains(got, "geheim") || strings.Contains(got, fmt.Sprintf("%x", "geheim")) {
			t.Errorf("%s shows %s", verb, got)
		}
	}
}
