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
)

var life = flag.Duration("life", 10*time.Minute, "how long the certificates of BenchmarkSoak live")

const stopLoad = "/root/stop-load"

// servers prints the processes that nobody restarts to renew a certificate.
const servers = `for p in /proc/[0-9]*; do
  case $(tr '\0' ' ' <$p/cmdline 2>/dev/null) in "etcd "*|"kube-apiserver "*) echo $p;; esac
done`

// BenchmarkSoak keeps a cluster of kubeadm alive whose certificates end soon, under load, for as long as -benchtime says.
// A request that fails twice fails it, and so do a certificate that ends, and another process of etcd or kube-apiserver.
func BenchmarkSoak(b *testing.B) {
	c := start(b, *life)
	program := filepath.Join(b.TempDir(), "load")
	command(b, "go", "build", "-o", program, "./testdata/load")
	binary, err := os.ReadFile(program)
	must.Do(b, err)
	must.Do(b, c.control.Host.PutFile("/usr/bin/load", host.File{Data: binary, Mode: 0o755}))
	page := runbook.Read(b, "../../docs/usage/renewal.md")
	must.Do(b, c.control.Host.PutFile("/etc/node-cert-agent/config.d/70-soak.yaml",
		host.File{Data: fmt.Appendf(nil, "apiVersion: config.node-cert-agent.io/v1alpha1\nrenewal: {interval: 5s, lifetime: %s}\n",
			*life)}))
	c.control.Run("sh", "-euc", page.Block("Seeing them", 0))
	c.control.Run("sh", "-euc", page.Block("Renewing them while nobody watches", 0))
	before := c.must(servers)

	said := make(chan string)
	go func() {
		out, err := c.control.Host.Run(c.control.Ctx, "/usr/bin/load", stopLoad)
		if err != nil {
			out += err.Error()
		}
		said <- out
	}()
	tick := time.NewTicker(time.Second)
	for b.Loop() {
		<-tick.C
		for name, v := range pairsOn(b, c.control) {
			if !time.Now().Before(v.Leaf.NotAfter) {
				b.Fatalf("%s ended at %v", name, v.Leaf.NotAfter)
			}
		}
	}
	must.Do(b, c.control.Host.PutFile(stopLoad, host.File{}))
	c.judge(b, <-said)
	c.control.Await("those are back who read their pair when they start", func() bool {
		all := pairsOn(b, c.control)
		return all["controller-manager.conf"].StaleReason()+all["scheduler.conf"].StaleReason() == ""
	})
	if after := c.must(servers); after != before || strings.Count(before, "/proc/") != 2 {
		b.Errorf("the servers were %q, and are %q", before, after)
	}
}

// judge reports what the load said, and what the signer recorded.
func (c *kubeadmCluster) judge(b *testing.B, said string) {
	b.Helper()
	var requests, retries, failed, slowest int
	lines := strings.Split(strings.TrimSpace(said), "\n")
	last := lines[len(lines)-1]
	_, err := fmt.Sscanf(last, "%d requests, %d retries, %d failed, slowest %d ms", &requests, &retries, &failed, &slowest)
	if err != nil || failed > 0 || requests < 100 {
		b.Errorf("the load says (%v)\n%s", err, said)
	}
	b.Logf("the load says\n%s", said)
	journal := c.control.Run("journalctl", "-o", "cat", "-u", "node-cert-agent-signer.service")
	b.ReportMetric(float64(strings.Count(journal, "signer keeps: ")), "renewals")
	b.ReportMetric(float64(strings.Count(journal, "signer ends: ")), "restarts")
	b.ReportMetric(float64(requests), "requests")
	b.ReportMetric(float64(retries), "retries")
	b.ReportMetric(float64(slowest), "ms-slowest")
	for _, bad := range []string{"signer restores: ", "signer abandons: "} {
		if strings.Contains(journal, bad) {
			b.Errorf("the journal has %q:\n%s", bad, journal)
		}
	}
}
