// SPDX-License-Identifier: Apache-2.0

//go:build real

package approver

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/csr"
	"github.com/node-cert-agent/node-cert-agent/cluster/approver/verdict"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/must"
)

// junk makes n requests with one credential, most for nodes that do not exist and some for one that does.
func (c *cluster) junk(by *http.Client, n int) {
	c.t.Helper()
	var workers sync.WaitGroup
	for w := range 4 {
		workers.Go(func() {
			for i := w; i < n; i += 4 {
				node := fmt.Sprintf("nowhere-%d", i)
				if i%10 == 0 {
					node = "good"
				}
				if code, answer := c.ask(by, http.MethodPost, requests, newClaim(c.t, node).object); code != http.StatusCreated {
					c.t.Errorf("request %d: %d %s", i, code, answer)
				}
			}
		})
	}
	workers.Wait()
}

func TestAFloodOfOneTokenDelaysNobodyElse(t *testing.T) {
	c := start(t)
	address, reader := freePort(t), c.monitor()
	c.approver("--metrics-bind-address", address)
	c.node("good")
	first := c.send(c.token("aaaaaa", csr.BootstrapGroup, ""), newClaim(t, "good"))
	agent := c.issued(first)
	c.report(agent, "good", map[string]any{"publicKey": first.publicKey(t)})
	const n = 5000
	begin, flooded := time.Now(), time.Now()
	c.junk(c.token("ffffff", csr.BootstrapGroup, ""), n)
	t.Logf("%d requests of one token in %v", n, time.Since(begin).Round(time.Second))
	begin = time.Now()
	c.until("the approver has all of them", func() bool {
		return c.metric(address, reader, "node_cert_controller_approver_pending_requests") == n
	})
	t.Logf("the approver has all of them after %v", time.Since(begin).Round(time.Millisecond))
	for range 3 {
		begin = time.Now()
		agent = c.issued(c.send(agent, newClaim(t, "good")))
		t.Logf("a renewal takes %v", time.Since(begin).Round(time.Millisecond))
	}
	c.node("new")
	begin = time.Now()
	c.issued(c.send(c.token("bbbbbb", csr.BootstrapGroup, ""), newClaim(t, "new")))
	t.Logf("a first certificate with another token takes %v", time.Since(begin).Round(time.Millisecond))
	// Even of the token that floods, the request that has a node is not held up.
	c.node("nowhere-7")
	begin = time.Now()
	c.until("a node of the crowd is answered", func() bool {
		return c.kubectl("get", "nodecertificatestate", "nowhere-7", "--ignore-not-found", "-o", "name") != ""
	})
	t.Logf("the node of the crowd that joins is answered within %v", time.Since(begin).Round(time.Millisecond))
	// The work, not the time: none of the junk was asked about, and few are told of.
	if got := c.metric(address, reader, "node_cert_controller_approver_inquiries_total"); got > 10 {
		t.Errorf("the API server was asked about %d requests", got)
	}
	events := c.kubectl("get", "events", "-n", "default", "--field-selector=reason=NodeCertificatePending", "-o", "name")
	minutes := int(time.Since(flooded)/time.Minute) + 1
	if got := strings.Count(events, "\n"); got > 20*minutes+minutes {
		t.Errorf("%d events tell of it in %d minutes", got, minutes)
	} else {
		t.Logf("%d events tell of it", got)
	}
}

func TestATokenForSingleUseServesOneNodeAndAWithdrawnTokenNone(t *testing.T) {
	c := start(t)
	c.approver()
	c.node("a")
	c.node("b")
	single := c.token("single", csr.BootstrapGroup, verdict.SingleUseLabel+`: "true"`)
	c.issued(c.send(single, newClaim(t, "a"))) // whoever has it never reports
	c.left(c.send(single, newClaim(t, "b")).name, "token")

	revoked, late := c.token("revoke", csr.BootstrapGroup, ""), newClaim(t, "late")
	c.left(c.send(revoked, late).name, "inventory")
	disabled, other := c.token("disabl", csr.BootstrapGroup, ""), newClaim(t, "other")
	c.left(c.send(disabled, other).name, "inventory")
	c.kubectl("delete", "secret", "-n", "kube-system", "bootstrap-token-revoke")
	c.kubectl("patch", "secret", "-n", "kube-system", "bootstrap-token-disabl", "-p",
		`{"stringData":{"usage-bootstrap-authentication":"false"}}`)
	c.node("late")
	c.node("other")
	c.left(late.name, "token")
	c.left(other.name, "token")
}

func TestANodeThatWasDeletedStopsRenewingUntilItIsBack(t *testing.T) {
	c := start(t)
	list := filepath.Join(t.TempDir(), "nodes")
	must.Do(t, os.WriteFile(list, []byte("firewall\n"), 0o600))
	c.approver("--nodes", list)
	token := c.token("abcdef", csr.BootstrapGroup, "")
	bound := c.token("bounds", csr.BootstrapGroup+","+verdict.NodeGroup("early"), "")
	early := c.issued(c.send(bound, newClaim(t, "early"))) // before its kubelet has registered it
	early = c.issued(c.send(early, newClaim(t, "early")))
	c.node("early")
	c.node("a")
	agent := c.issued(c.send(token, newClaim(t, "a")))
	firewall := c.issued(c.send(token, newClaim(t, "firewall")))
	c.until("it is noted that the node has come", func() bool {
		return c.kubectl("get", "nodecertificatestate", "early", "-o", "jsonpath={.spec.knownSince}") != ""
	})
	c.kubectl("delete", "node", "a", "early")
	must.Do(t, os.WriteFile(list, nil, 0o600))
	renewals := map[string]claim{}
	for node, client := range map[string]*http.Client{"a": agent, "early": early, "firewall": firewall} {
		renewals[node] = c.send(client, newClaim(t, node))
		c.left(renewals[node].name, "inventory")
	}
	// Another object of the name stands for the node, as it does for Kubernetes.
	begin := time.Now()
	c.node("a")
	c.issued(renewals["a"])
	t.Logf("the renewal is answered within %v of the Node", time.Since(begin).Round(time.Millisecond))
	if got := c.conditions(renewals["early"].name); got != "" {
		t.Errorf("a node that is gone: %s", got)
	}
}

// TestALyingNodeIsSilentWhenItIs: neither its clock nor what it writes about its writing counts.
func TestALyingNodeIsSilentWhenItIs(t *testing.T) {
	c := start(t)
	c.node("a")
	c.approver("--stale-after", "1m", "--lease", "6s")
	shared := c.token("shared", csr.BootstrapGroup, "")
	first := c.send(shared, newClaim(t, "a"))
	agent := c.issued(first)
	const future = "2031-01-01T00:00:00Z"
	c.reportAt(agent, "a", future, map[string]any{"publicKey": first.publicKey(t), "issued": future, "expires": future})
	// Somebody who may write managedFields, which no agent may, changes nothing by it.
	c.kubectl("patch", "nodecertificatestate", "a", "--subresource=status", "--type=merge", "-p", `{"metadata":{"managedFields":[{
		"manager":"node-cert-agent","operation":"Apply","apiVersion":"node-cert-agent.io/v1alpha1","time":"`+future+`",
		"fieldsType":"FieldsV1","fieldsV1":{"f:status":{"f:state":{}}},"subresource":"status"}]}}`)
	second := c.send(shared, newClaim(t, "a"))
	c.left(second.name, "live identity")
	c.kubectl("wait", "csr/"+second.name, "--for=condition=Approved", "--timeout=150s")
}
