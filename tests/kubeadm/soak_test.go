// SPDX-License-Identifier: Apache-2.0

//go:build real

package kubeadm

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/must"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/runbook"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testnode"
)

var (
	life   = flag.Duration("life", 10*time.Minute, "how long the certificates of BenchmarkSoak live")
	planes = flag.Int("planes", 1, "how many control-plane hosts it has")
)

const stopLoad = "/root/stop-load"

// servers prints the processes that nobody restarts to renew a certificate.
const servers = `for p in /proc/[0-9]*; do
  case $(tr '\0' ' ' <$p/cmdline 2>/dev/null) in "etcd "*|"kube-apiserver "*) echo $p;; esac
done`

// BenchmarkSoak keeps a cluster of kubeadm alive whose certificates end soon, under load, for as long as -benchtime says.
// A request that fails twice fails it, and so do a certificate that ends, and another process of etcd or kube-apiserver.
func BenchmarkSoak(b *testing.B) {
	c := start(b, shape{life: *life, planes: *planes})
	program := filepath.Join(b.TempDir(), "load")
	command(b, "go", "build", "-o", program, "./testdata/load")
	binary, err := os.ReadFile(program)
	must.Do(b, err)
	all := append([]*testnode.Node{c.control}, c.others...)
	before := map[*testnode.Node]string{}
	for _, n := range all {
		must.Do(b, n.Host.PutFile("/usr/bin/load", host.File{Data: binary, Mode: 0o755}))
		c.renewAlways(n)
		before[n] = n.Run("sh", "-euc", servers)
	}
	said := map[*testnode.Node]chan string{}
	for i, n := range all {
		said[n] = make(chan string, 1)
		address := controlAddress
		if i > 0 {
			address = fmt.Sprintf("10.99.0.%d", i+2)
		}
		go func() { said[n] <- loadOn(n, address) }()
	}
	tick := time.NewTicker(time.Second)
	for b.Loop() {
		<-tick.C
		for _, n := range all {
			for name, v := range pairsOn(b, n) {
				if !time.Now().Before(v.Leaf.NotAfter) {
					b.Fatalf("%s ended at %v", name, v.Leaf.NotAfter)
				}
			}
		}
	}
	for _, n := range all {
		must.Do(b, n.Host.PutFile(stopLoad, host.File{}))
		n.Await("those are back who read their pair when they start", func() bool {
			pairs := pairsOn(b, n)
			return pairs["controller-manager.conf"].StaleReason()+pairs["scheduler.conf"].StaleReason() == ""
		})
		if after := n.Run("sh", "-euc", servers); after != before[n] || strings.Count(after, "/proc/") != 2 {
			b.Errorf("the servers were %q, and are %q", before[n], after)
		}
	}
	c.judge(b, all, said)
}

// renewAlways has the service of a host renew what is due.
func (c *kubeadmCluster) renewAlways(n *testnode.Node) {
	c.t.Helper()
	page := runbook.Read(c.t, "../../docs/usage/renewal.md")
	must.Do(c.t, n.Host.PutFile("/etc/node-cert-agent/config.d/70-soak.yaml", host.File{Data: fmt.Appendf(nil,
		"apiVersion: config.node-cert-agent.io/v1alpha1\nrenewal: {interval: 5s, lifetime: %s}\n", *life)}))
	n.Run("sh", "-euc", page.Block("Seeing them", 0))
	n.Run("sh", "-euc", page.Block("Renewing them while nobody watches", 0))
}

// loadOn asks the servers of a host until the file appears.
func loadOn(n *testnode.Node, address string) string {
	out, err := n.Host.Run(n.Ctx, "/usr/bin/load", "https://"+address+":6443", stopLoad)
	if err != nil {
		out += err.Error()
	}
	return strings.TrimSpace(out)
}

// judge reports what the loads said, and what the signers recorded.
func (c *kubeadmCluster) judge(b *testing.B, all []*testnode.Node, said map[*testnode.Node]chan string) {
	b.Helper()
	sums := map[string]float64{}
	for _, n := range all {
		text := <-said[n]
		last := text[strings.LastIndexByte(text, '\n')+1:]
		var requests, retries, failed, slowest int
		_, err := fmt.Sscanf(last, "%d requests, %d retries, %d failed, slowest %d ms", &requests, &retries, &failed, &slowest)
		if err != nil || failed > 0 || requests < 100 {
			b.Errorf("a load failed: %v", err)
		}
		b.Logf("a load says\n%s", text)
		journal := n.Run("journalctl", "-o", "cat", "-u", "node-cert-agent-signer.service")
		for _, bad := range []string{"signer restores: ", "signer abandons: "} {
			if strings.Contains(journal, bad) {
				b.Errorf("the journal has %q:\n%s", bad, journal)
			}
		}
		sums["renewals"] += float64(strings.Count(journal, "signer keeps: "))
		sums["restarts"] += float64(strings.Count(journal, "signer ends: "))
		sums["requests"] += float64(requests)
		sums["retries"] += float64(retries)
		sums["ms-slowest"] = max(sums["ms-slowest"], float64(slowest))
	}
	for unit, n := range sums {
		b.ReportMetric(n, unit)
	}
}
