// SPDX-License-Identifier: Apache-2.0

//go:build real

package kubeadm

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/liveness"
	"github.com/node-cert-agent/node-cert-agent/renew/pair"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/must"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/runbook"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testnode"
)

// seePairs has both hosts say how the certificates stand that kubeadm made.
func (c *kubeadmCluster) seePairs() {
	c.t.Helper()
	page := runbook.Read(c.t, "../../docs/usage/renewal.md")
	for _, n := range c.nodes() {
		n.Run("sh", "-euc", page.Block("Seeing them", 0))
	}
	all := pairsOn(c.t, c.control)
	want := []string{"admin.conf", "apiserver", "apiserver-etcd-client", "apiserver-kubelet-client", "controller-manager.conf",
		"etcd-healthcheck-client", "etcd-peer", "etcd-server", "front-proxy-client", "kubelet.conf", "scheduler.conf",
		"super-admin.conf"}
	if got := slices.Sorted(maps.Keys(all)); !slices.Equal(got, want) {
		c.t.Errorf("pairs %q, want %q", got, want)
	}
	for name, v := range all {
		life := time.Until(v.Leaf.NotAfter)
		switch {
		case v.Problem != "" || v.Foreign != "" || life < 300*24*time.Hour || life > 366*24*time.Hour:
			c.t.Errorf("%s: %+v", name, v)
		case name == "kubelet.conf":
			if v.RenewedBy != "kubelet" || v.State != pair.OK {
				c.t.Errorf("%s: %+v", name, v)
			}
		case v.RenewedBy != "" || v.CA == nil || !v.CA.KeyHere || !strings.Contains(v.NotRenewed, "only reports"):
			c.t.Errorf("%s is renewed by %q, not because %q; CA %+v", name, v.RenewedBy, v.NotRenewed, v.CA)
		}
	}
	for _, name := range []string{"apiserver", "etcd-server", "etcd-peer", "controller-manager.conf", "scheduler.conf"} {
		if u := all[name].Use; u == nil || u.State != liveness.Live {
			c.t.Errorf("%s is used so: %+v, served %+v", name, u, all[name].Served)
		}
	}
	worker := pairsOn(c.t, c.worker)
	if len(worker) != 1 || worker["kubelet.conf"].RenewedBy != "kubelet" {
		c.t.Errorf("the worker has %+v", worker)
	}
	c.staleScheduler()
	if out := c.control.Run("sh", "-euc", page.Block("Seeing them", 1)); !strings.Contains(out, "the first that nobody renews is ") {
		c.t.Errorf("it prints\n%s", out)
	}
}

// staleScheduler has kubeadm renew what the scheduler only reads when it starts.
func (c *kubeadmCluster) staleScheduler() {
	c.t.Helper()
	c.must("kubeadm certs renew scheduler.conf --config kubeadm.yaml")
	c.control.Run("systemctl", "restart", "node-cert-agent-renew.service")
	if u := pairsOn(c.t, c.control)["scheduler.conf"].Use; u == nil || u.State != liveness.Stale {
		c.t.Errorf("a scheduler with an old kubeconfig is used so: %+v", u)
	}
}

// renewPairs renews all that kubeadm made, while the cluster runs.
func (c *kubeadmCluster) renewPairs() {
	c.t.Helper()
	page := runbook.Read(c.t, "../../docs/usage/renewal.md")
	before := pairsOn(c.t, c.control)
	if out, err := c.control.Host.Run(c.t.Context(), "node-cert-agent", "renew", "now"); err == nil || !strings.Contains(out+err.Error(), "mode") {
		c.t.Errorf("a host that only reports: %s, %v", out, err)
	}
	c.control.Run("sh", "-euc", page.Block("Renewing them by hand", 0))
	if out := c.control.Run("sh", "-euc", page.Block("Renewing them by hand", 1)); !strings.Contains(out, "nothing is due") {
		c.t.Errorf("it would renew\n%s", out)
	}
	out := c.control.Run("sh", "-euc", page.Block("Renewing them by hand", 2))
	if n := strings.Count(out, ": renewed, ends at"); n != 11 || strings.Contains(out, "(") {
		c.t.Errorf("%d pairs of 11 are renewed and proven by all:\n%s", n, out)
	}
	c.must("kubectl get --raw /readyz && kubectl get nodes")
	if out := c.control.Run("sh", "-euc", page.Block("Renewing them by hand", 3)); strings.Count(out, ": in use after a restart") != 2 {
		c.t.Errorf("the controller-manager and the scheduler are not restarted:\n%s", out)
	}
	c.control.Run("systemctl", "restart", "node-cert-agent-renew.service")
	for name, v := range pairsOn(c.t, c.control) {
		was := before[name]
		renewed := v.Leaf.SHA256 != was.Leaf.SHA256
		if renewed != (name != "kubelet.conf") || v.Leaf.Subject != was.Leaf.Subject || v.Problem != "" || v.StaleReason() != "" {
			c.t.Errorf("%s: %+v", name, v)
		}
	}
	if out := c.control.Run("sh", "-euc", page.Block("Renewing them by hand", 4)); strings.Count(out, " replaces: ") != 11 ||
		strings.Count(out, " keeps: ") != 11 || strings.Count(out, " ends: ") != 2 {
		c.t.Errorf("the signer recorded\n%s", out)
	}
	c.renewElsewhere(page)
	c.restoreUnproven()
}

// renewElsewhere has the pair for etcd renewed as if etcd's CA key were on another host: it is away but for one command.
func (c *kubeadmCluster) renewElsewhere(page runbook.Page) {
	c.t.Helper()
	const section, key = "With an external etcd", "/etc/kubernetes/pki/etcd/ca.key"
	before := pairsOn(c.t, c.control)["apiserver-etcd-client"].Leaf
	c.control.Run("sh", "-euc", page.Block(section, 0))
	do := func(n int) string { return c.control.Run("sh", "-euc", "cd /root; "+page.Block(section, n)) }
	c.control.Run("mv", key, "/root/ca.key")
	do(1)
	c.control.Run("mv", "/root/ca.key", key)
	do(2)
	c.control.Run("mv", key, "/root/ca.key")
	if out, err := c.control.Host.Run(c.t.Context(), "sh", "-c",
		"node-cert-agent renew install apiserver-etcd-client </root/request.pem"); err == nil || !strings.Contains(err.Error(),
		"the answer is not one certificate") {
		c.t.Errorf("a request was installed: %s, %v", out, err)
	}
	if out := do(3); !strings.HasPrefix(out, "apiserver-etcd-client: renewed, ends at ") || strings.Contains(out, "(") {
		c.t.Errorf("it prints\n%s", out)
	}
	c.control.Run("mv", "/root/ca.key", key)
	c.control.Run("rm", "/etc/node-cert-agent/config.d/61-renewal-external-etcd.yaml")
	c.control.Run("systemctl", "stop", "node-cert-agent-signer.service")
	c.control.Run("systemctl", "restart", "node-cert-agent-renew.service")
	after := pairsOn(c.t, c.control)["apiserver-etcd-client"].Leaf
	if after.SHA256 == before.SHA256 || after.Subject != before.Subject {
		c.t.Errorf("%+v became %+v", before, after)
	}
	c.must("kubectl get --raw /readyz/etcd")
}

// renewUnattended has kubeadm make pairs that end in half a minute, and the service renew them.
func (c *kubeadmCluster) renewUnattended() {
	c.t.Helper()
	page := runbook.Read(c.t, "../../docs/usage/renewal.md")
	must.Do(c.t, c.control.Host.PutFile("/etc/node-cert-agent/config.d/70-short.yaml",
		host.File{Data: []byte("apiVersion: config.node-cert-agent.io/v1alpha1\nrenewal: {interval: 1s, lifetime: 8760h}\n")}))
	c.must("sed 's/^kind: ClusterConfiguration/&\\ncertificateValidityPeriod: 30s/' kubeadm.yaml >short.yaml")
	for _, name := range []string{"apiserver-etcd-client", "etcd-healthcheck-client", "scheduler.conf"} {
		c.must("kubeadm certs renew " + name + " --config short.yaml")
	}
	c.control.Run("sh", "-euc", page.Block("Renewing them while nobody watches", 0))
	c.control.Await("what is due is renewed, and the scheduler uses it", func() bool {
		all := pairsOn(c.t, c.control)
		for _, name := range []string{"apiserver-etcd-client", "etcd-healthcheck-client", "scheduler.conf"} {
			if v := all[name]; time.Until(v.Leaf.NotAfter) < 300*24*time.Hour || v.State != pair.OK || v.RenewedBy != pair.Us ||
				v.StaleReason() != "" {
				return false
			}
		}
		return all["scheduler.conf"].Use != nil
	})
	c.control.Await("the lock is free", func() bool {
		return strings.Contains(c.control.Run("sh", "-euc", page.Block("Renewing them while nobody watches", 1)), "nobody holds the lock")
	})
	c.control.Run("rm", "/etc/node-cert-agent/config.d/60-renewal.yaml", "/etc/node-cert-agent/config.d/70-short.yaml")
	c.control.Run("systemctl", "stop", "node-cert-agent-signer.service")
	c.control.Run("systemctl", "restart", "node-cert-agent-renew.service")
}

// restoreUnproven renews a kubeconfig whose server is not there.
func (c *kubeadmCluster) restoreUnproven() {
	c.t.Helper()
	const file = "/etc/kubernetes/super-admin.conf"
	c.control.Run("sed", "-i", "s,server: .*,server: https://127.0.0.1:1,", file)
	before := string(c.control.File(file))
	must.Do(c.t, c.control.Host.PutFile("/etc/node-cert-agent/config.d/70-short.yaml",
		host.File{Data: []byte("apiVersion: config.node-cert-agent.io/v1alpha1\nrenewal: {timeout: 2s}\n")}))
	out, err := c.control.Host.Run(c.t.Context(), "node-cert-agent", "renew", "now", "--force", "super-admin.conf")
	if err == nil || !strings.Contains(out, "super-admin.conf: restored") || !strings.Contains(err.Error(), "127.0.0.1:1") {
		c.t.Errorf("%s, %v", out, err)
	}
	if after := string(c.control.File(file)); after != before {
		c.t.Error("the old kubeconfig was not restored byte for byte")
	}
	c.renewUnattended()
}

// pairsOn is what a host prints, by name.
func pairsOn(t testing.TB, n *testnode.Node) map[string]pair.Verdict {
	t.Helper()
	var r pair.Report
	out, _ := n.Host.Run(t.Context(), "node-cert-agent", "renew", "-o", "json") // exit code 3 says that something is due
	must.Do(t, json.Unmarshal([]byte(out), &r))
	all := map[string]pair.Verdict{}
	for _, v := range r.Pairs {
		all[v.Name] = v
	}
	return all
}
