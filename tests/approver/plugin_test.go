// SPDX-License-Identifier: Apache-2.0

//go:build real

package approver

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/csr"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/must"
)

// Without a controller a person approves by hand, and the plugin says what the controller would.
func TestAPersonApprovesByHandWhatTheControllerWould(t *testing.T) {
	c := start(t)
	plugin := c.plugin()
	shared := c.token("shared", csr.BootstrapGroup, "")
	c.node("a")
	first := c.send(shared, newClaim(t, "a"))
	if out, err := plugin("approve", "--dry-run", first.name); err != nil || !strings.Contains(out, "would approve it") ||
		!strings.Contains(out, "the bootstrap token shared") || c.conditions(first.name) != "" {
		t.Errorf("what is only shown: %v, %s, %s", err, out, c.conditions(first.name))
	}
	if out, err := plugin("approve", first.name); err != nil || !strings.HasSuffix(out, "\napproved\n") {
		t.Errorf("a good request: %v, %s", err, out)
	}
	agent := c.issued(first)
	now := time.Now().UTC()
	c.report(agent, "a", map[string]any{"publicKey": first.publicKey(t),
		"issued": now.Add(-5 * time.Minute).Format(time.RFC3339), "expires": now.Add(week * time.Second).Format(time.RFC3339)})

	refused := func(name, why string, args ...string) {
		t.Helper()
		out, err := plugin(append([]string{"approve", name}, args...)...)
		if err == nil || !strings.Contains(out, why) || c.conditions(name) != "" {
			t.Errorf("to be refused for %q: %v, %s, %s", why, err, out, c.conditions(name))
		}
	}
	second := c.send(shared, newClaim(t, "a"))
	refused(second.name, "leave it pending: live identity: the identity of a is in use")
	refused(c.send(shared, newClaim(t, "unknown")).name, "inventory: there is no node unknown")
	foreign := newClaim(t, "a")
	foreign.object["spec"].(map[string]any)["expirationSeconds"] = nil
	refused(c.send(c.AdminClient(), foreign).name, "lifetime: ", "--force")
	if out, err := plugin("approve", "--force", second.name); err != nil {
		t.Errorf("with force: %v, %s", err, out)
	}
	c.issued(second)
	note := c.kubectl("get", "nodecertificatestate", "a", "-o", "jsonpath={.spec.bootstrap.request}")
	if note != second.name {
		t.Errorf("noted is %q, want %q: nobody would delete a token for single use", note, second.name)
	}
	refusedAfter, err := plugin("approve", first.name)
	if err == nil || !strings.Contains(refusedAfter, "decided already") {
		t.Errorf("a decided request: %v, %s", err, refusedAfter)
	}
}

// plugin builds kubectl-node_certs, and runs it as the administrator.
func (c *cluster) plugin() func(args ...string) (string, error) {
	c.t.Helper()
	path := filepath.Join(c.t.TempDir(), "kubectl-node_certs")
	out, err := exec.Command("go", "build", "-o", path, "../../cmd/kubectl-node_certs").CombinedOutput()
	if err != nil {
		c.t.Fatalf("building the plugin: %v\n%s", err, out)
	}
	admin, err := c.Kubeconfig(c.URL(), "admin", "system:masters")
	must.Do(c.t, err)
	return func(args ...string) (string, error) {
		out, err := exec.CommandContext(c.t.Context(), path, append(args, "--kubeconfig", admin)...).CombinedOutput()
		return string(out), err
	}
}
