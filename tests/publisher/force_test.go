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
	"github.com/node-cert-agent/node-cert-agent/tests/harness/runbook"
)

// publishing is the page whose blocks these tests run.
const publishing = "../../docs/usage/publishing.md"

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
		const heading = "Letting a certificate go by force"
		run := c.as("alice")
		c.configMap("trust", "forced", a, b)
		c.bundle("forced", from("forced", "forced"))
		c.published("forced", "a b")
		c.apply("{apiVersion: v1, kind: Node, metadata: {name: n1}}")
		c.configMap("trust", "forced", b)
		c.says("forced", "Converged", "RemovalBlocked", "n1 has never reported")

		out, err := run(heading, 0, "NODEBUNDLE", "forced")
		if err != nil || !strings.Contains(out, "CN=a") || !strings.Contains(out, "n1") {
			c.t.Errorf("what is shown: %v\n%s", err, out)
		}
		c.refusedForce()
		out, err = run(heading, 1, "NODEBUNDLE", "forced", "the key of this CA has leaked", "n1 burnt down")
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

// as runs blocks of the page as an administrator of that name, who has the plugin of kubectl. Each pair of words is the
// page's and what stands in its place.
func (c *cluster) as(name string) func(heading string, block int, words ...string) (string, error) {
	c.t.Helper()
	kubeconfig, err := c.Kubeconfig(c.URL(), name, "system:masters")
	must.Do(c.t, err)
	page := runbook.Read(c.t, publishing)
	return func(heading string, block int, words ...string) (string, error) {
		text := strings.NewReplacer(words...).Replace(page.Block(heading, block))
		cmd := exec.CommandContext(c.t.Context(), "sh", "-euc", text)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "PATH="+c.bin+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
}

// install makes a directory with kubectl and the plugin.
func (c *cluster) install() {
	c.t.Helper()
	c.bin = c.t.TempDir()
	build := exec.Command("go", "build", "-o", c.bin, "../../cmd/kubectl-node_certs")
	if out, err := build.CombinedOutput(); err != nil {
		c.t.Fatalf("building the plugin: %v\n%s", err, out)
	}
	must.Do(c.t, os.Symlink(c.KubectlPath(), filepath.Join(c.bin, "kubectl")))
}

// block is one of the page.
func (c *cluster) block(heading string, block int) string {
	c.t.Helper()
	return runbook.Read(c.t, publishing).Block(heading, block)
}
