// SPDX-License-Identifier: Apache-2.0

//go:build real

package renewal

import (
	"context"
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/disk"
	"github.com/node-cert-agent/node-cert-agent/agent/secret"
	"github.com/node-cert-agent/node-cert-agent/renew/issue"
	"github.com/node-cert-agent/node-cert-agent/renew/pair"
	"github.com/node-cert-agent/node-cert-agent/renew/replace"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/must"
)

// BenchmarkServerPair replaces the server pair of a busy member: in our way, by overwriting the key and then the
// certificate, and by kubeadm itself, which does the latter. It says how many fresh handshakes failed for each
// replacement.
func BenchmarkServerPair(b *testing.B) {
	p := start(b, time.Hour, 24*time.Hour)
	p.ready()
	n := p.hosts[0]
	files := replace.Pair{ID: "etcd-server", Key: "/" + pki + "server.key", Certificate: "/" + pki + "server.crt"}
	r := p.replacer(n)
	for name, how := range map[string]struct {
		reuse bool
		put   func(old, next replace.Content)
	}{
		"overwritten": {false, func(_, next replace.Content) {
			must.Do(b, os.WriteFile(filepath.Join(n.Root, files.Key), next.Key.Reveal(), 0o600))
			must.Do(b, os.WriteFile(filepath.Join(n.Root, files.Certificate), next.Certificate, 0o600))
		}},
		"kubeadm":        {false, func(_, _ replace.Content) { p.kubeadmRenews(n) }},
		"ours":           {false, p.ours(r, files)},
		"ours, same key": {true, p.ours(r, files)},
	} {
		n.age(time.Hour, 24*time.Hour) // kubeadm makes a key of its own kind
		b.Run(name, func(b *testing.B) {
			failed, asked := p.fresh(n, func(replaced func()) {
				for b.Loop() {
					old, err := r.Read(files)
					must.Do(b, err)
					leaf, err := pair.Certificate(old.Certificate)
					must.Do(b, err)
					longer := time.Until(leaf.NotAfter) + time.Minute
					next, err := issue.Order{Old: issue.Pair{Certificate: old.Certificate, Key: old.Key}, CA: p.ca.PEM(),
						CAKey: secret.New(p.ca.KeyPEM()), Now: time.Now(), Lifetime: longer, ReuseKey: how.reuse}.Successor(rand.Reader)
					must.Do(b, err)
					how.put(old, replace.Content{Certificate: next.Certificate, Key: next.Key})
					replaced()
				}
			})
			b.ReportMetric(float64(failed)/float64(b.N), "failed/pair")
			b.ReportMetric(float64(asked)/float64(b.N), "handshakes/pair")
		})
	}
}

// kubeadmRenews has kubeadm renew the server pair of a host's member.
func (p *plane) kubeadmRenews(n *node) {
	p.Helper()
	config := filepath.Join(n.Root, "kubeadm.yaml")
	must.Do(p, os.WriteFile(config, []byte(`apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: 10.99.0.1}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v1.36.0
certificatesDir: `+filepath.Join(n.Root, "etc/kubernetes/pki")+"\n"), 0o600))
	// Of a pair that it does not find it says so, and succeeds.
	out, err := exec.Command(p.kubeadm, "certs", "renew", "etcd-server", "--config", config).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "renewed") {
		p.Fatalf("kubeadm: %v\n%s", err, out)
	}
}

// replacer is a Replacer of its own for a host.
func (p *plane) replacer(n *node) *replace.Replacer {
	p.Helper()
	must.Do(p, os.Mkdir(filepath.Join(n.Root, "bench"), 0o700))
	tree, err := disk.Open(n.Root)
	must.Do(p, err)
	state, err := tree.Directory("/bench")
	must.Do(p, err)
	r, err := replace.Open(tree, state)
	must.Do(p, err)
	p.Cleanup(r.Close)
	_, err = r.Recover()
	must.Do(p, err)
	return r
}

// ours replaces and keeps a pair.
func (p *plane) ours(r *replace.Replacer, files replace.Pair) func(old, next replace.Content) {
	return func(old, next replace.Content) {
		must.Do(p, r.Replace(files, old.Digests(), next))
		must.Do(p, r.Keep(files.ID, next.Digests().Certificate))
	}
}

// fresh has three clients make one connection after the other to a member, while do replaces pairs. Each replacement is
// over when each client has been answered once more, or has failed.
func (p *plane) fresh(n *node, do func(replaced func())) (failed, asked int64) {
	ctx, cancel := context.WithCancel(p.Context())
	var bad, all atomic.Int64
	var clients sync.WaitGroup
	for range 3 {
		clients.Go(func() {
			for ctx.Err() == nil {
				c := p.ask(n)
				if _, err := c.Get(ctx, "x"); err != nil && ctx.Err() == nil {
					bad.Add(1)
				}
				all.Add(1)
				c.Close()
			}
		})
	}
	do(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for from := all.Load(); all.Load() < from+6; {
			<-tick.C
		}
	})
	cancel()
	clients.Wait()
	return bad.Load(), all.Load()
}
