// SPDX-License-Identifier: Apache-2.0

//go:build real

package publisher

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/cluster/publisher/merge"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/must"
)

// auditLog is where the API server of these tests writes down each change of what is published. The arguments have it
// do so.
func auditLog(t *testing.T) (path string, args []string) {
	t.Helper()
	dir := t.TempDir()
	policy, path := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	must.Do(t, os.WriteFile(policy, []byte(`apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, verbs: [patch], resources: [{group: node-cert-agent.io}]}
- {level: None}
`), 0o600))
	return path, []string{"--audit-policy-file=" + policy, "--audit-log-path=" + path}
}

// annotation is the last that the audit log has under a key, and the user of that request.
func annotation(t *testing.T, log, key string) (value, user string) {
	t.Helper()
	data, err := os.ReadFile(log)
	must.Do(t, err)
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		var e struct {
			User        struct{ Username string }
			Annotations map[string]string
		}
		if json.Unmarshal(lines.Bytes(), &e) == nil && e.Annotations[key] != "" {
			value, user = e.Annotations[key], e.User.Username
		}
	}
	return value, user
}

// forced: n1 is gone for good, and somebody says so. It is in the audit log who, and why.
func forced(log string) func(c *cluster) {
	return func(c *cluster) {
		plugin := c.plugin("alice")
		c.configMap("trust", "forced", a, b)
		c.bundle("forced", from("forced", "forced"))
		c.published("forced", "a b")
		c.apply("{apiVersion: v1, kind: Node, metadata: {name: n1}}")
		c.configMap("trust", "forced", b)
		c.says("forced", "Converged", "RemovalBlocked", "n1 has never reported")

		out, err := plugin("release", "forced")
		if err != nil || !strings.Contains(out, "CN=a") || !strings.Contains(out, "n1") {
			c.t.Errorf("what is shown: %v\n%s", err, out)
		}
		c.refusedForce()
		out, err = plugin("release", "forced", "--force", "--reason", "n1 burnt down")
		if err != nil {
			c.t.Fatalf("with force: %v\n%s", err, out)
		}
		c.published("forced", "b")
		c.event("forced", "RemovalForced", "alice forces it: n1 burnt down")
		value, user := annotation(c.t, log, "node-cert-publisher-force/forced")
		if user != "alice" || !strings.HasPrefix(value, "alice: n1 burnt down: sha256:") {
			c.t.Errorf("who forced it: %q by %q", value, user)
		}
		value, user = annotation(c.t, log, "node-cert-publisher-removals/removed")
		if user != account || !strings.Contains(value, "NodeBundle forced: sha256:") ||
			!strings.Contains(value, "alice forces it") {
			c.t.Errorf("what came of it: %q by %q", value, user)
		}

		// The same certificate comes back and goes again. Nobody has forced that.
		c.configMap("trust", "forced", a, b)
		c.published("forced", "a b")
		c.configMap("trust", "forced", b)
		c.says("forced", "Converged", "RemovalBlocked", "n1 has never reported")
		c.published("forced", "a b")
		c.kubectl("delete", "node", "n1")
	}
}

// overdue: the deadline has passed, and that is in the audit log, too.
func overdue(log string) func(c *cluster) {
	return func(c *cluster) {
		c.configMap("trust", "overdue", a, b)
		c.bundle("overdue", from("overdue", "overdue")+", removal: {deadline: 1s}")
		c.published("overdue", "a b")
		c.apply("{apiVersion: v1, kind: Node, metadata: {name: n1}}")
		c.configMap("trust", "overdue", b)
		c.published("overdue", "b")
		c.event("overdue", "DeadlinePassed", "the deadline has passed")
		value, user := annotation(c.t, log, "node-cert-publisher-removals/removed")
		if user != account || !strings.Contains(value, "NodeBundle overdue: sha256:") ||
			!strings.Contains(value, "the deadline has passed") {
			c.t.Errorf("it says %q by %q", value, user)
		}
		c.kubectl("delete", "node", "n1")
	}
}

// refusedForce tries to force a removal under another name, and without a reason.
func (c *cluster) refusedForce() {
	c.t.Helper()
	try := func(by, reason string) string {
		_, err := c.Kubectl(c.t.Context(), "annotate", "--overwrite", "nodebundle", "forced", merge.ForceRemoval+"=x",
			merge.ForcedBy+"="+by, merge.ForceReason+"="+reason)
		if err == nil { // the policy is not in force yet
			c.kubectl("annotate", "nodebundle", "forced", merge.ForceRemoval+"-", merge.ForcedBy+"-", merge.ForceReason+"-")
		}
		return fmt.Sprint(err)
	}
	last := ""
	c.until("somebody else's name is refused", func() bool {
		last = try("somebody", "because")
		return strings.Contains(last, "in the annotation node-cert-agent.io/forced-by")
	}, &last)
	if got := try("somebody", ""); !strings.Contains(got, "needs a reason") {
		c.t.Errorf("without a reason: %s", got)
	}
}

// plugin builds kubectl-node_certs, and runs it as an administrator of that name.
func (c *cluster) plugin(name string) func(args ...string) (string, error) {
	c.t.Helper()
	path := filepath.Join(c.t.TempDir(), "kubectl-node_certs")
	if out, err := exec.Command("go", "build", "-o", path, "../../cmd/kubectl-node_certs").CombinedOutput(); err != nil {
		c.t.Fatalf("building the plugin: %v\n%s", err, out)
	}
	kubeconfig, err := c.Kubeconfig(c.URL(), name, "system:masters")
	must.Do(c.t, err)
	return func(args ...string) (string, error) {
		out, err := exec.CommandContext(c.t.Context(), path, append(args, "--kubeconfig", kubeconfig)...).CombinedOutput()
		return string(out), err
	}
}
