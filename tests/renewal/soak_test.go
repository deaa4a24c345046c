// SPDX-License-Identifier: Apache-2.0

//go:build real

package renewal

import (
	"context"
	"flag"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/renew/pair"
)

var life = flag.Duration("life", 10*time.Minute, "how long the pairs of BenchmarkSoak live")

// BenchmarkSoak has three services keep a cluster alive whose pairs end soon, under load, for as long as -benchtime says.
// A request that fails twice fails it, and so does a pair that ends.
func BenchmarkSoak(b *testing.B) {
	p := start(b, 0, *life)
	p.ready()
	l := p.load()
	ctx, cancel := context.WithCancel(b.Context())
	var services sync.WaitGroup
	for _, n := range p.hosts {
		services.Go(func() {
			s := p.service(n, *life/10)
			for tick := time.NewTicker(time.Second); ctx.Err() == nil; {
				if blocked, err := s.Turn(ctx); err != nil && ctx.Err() == nil {
					b.Logf("%s: %s, %v", n.name, blocked, err)
				}
				select {
				case <-ctx.Done():
				case <-tick.C:
				}
			}
		})
	}
	tick := time.NewTicker(time.Second)
	for b.Loop() {
		<-tick.C
		for _, n := range p.hosts {
			seen, err := n.client.Inspect(ctx)
			if err != nil || slices.ContainsFunc(seen.Pairs, func(f pair.Facts) bool { return !time.Now().Before(f.Leaf.NotAfter) }) {
				b.Errorf("%s: a pair has ended, or nobody can tell: %v", n.name, err)
			}
		}
	}
	cancel()
	services.Wait()
	l.end(b)
	b.ReportMetric(float64(len(p.records.with(" keeps: "))), "renewals")
	b.ReportMetric(float64(l.asked), "requests")
	b.ReportMetric(float64(l.again), "retries")
}
