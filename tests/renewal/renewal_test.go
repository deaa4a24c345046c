// SPDX-License-Identifier: Apache-2.0

//go:build real

package renewal

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/renew/etcd"
	"github.com/node-cert-agent/node-cert-agent/renew/pair"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/must"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/wait"
)

// load asks all members all the time, each on a kept connection and on fresh ones, and writes and reads. A request that
// fails is tried once more.
type load struct {
	cancel       context.CancelFunc
	done         sync.WaitGroup
	mu           sync.Mutex
	asked, again int
	failed       []string
}

func (p *plane) load() *load {
	l := &load{}
	ctx, cancel := context.WithCancel(p.Context())
	l.cancel = cancel
	for _, n := range p.hosts {
		kept := p.ask(n)
		l.done.Go(func() {
			defer kept.Close()
			for ctx.Err() == nil {
				l.request(ctx, n.name+", kept", func() error { return write(ctx, kept, "kept-"+n.name) })
				fresh := p.ask(n)
				l.request(ctx, n.name+", fresh", func() error { return write(ctx, fresh, "fresh-"+n.name) })
				fresh.Close()
			}
		})
	}
	return l
}

// write reads a key and changes it.
func write(ctx context.Context, c *etcd.Client, key string) error {
	was, err := c.Get(ctx, key)
	if err != nil {
		return err
	}
	from := int64(0)
	if was != nil {
		from = was.ModRevision
	}
	_, err = c.Commit(ctx, etcd.Change{Key: key, From: from, Value: []byte("x")})
	return err
}

func (l *load) request(ctx context.Context, who string, do func() error) {
	err := do()
	tries := 1
	if err != nil && ctx.Err() == nil {
		tries, err = 2, do()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	l.asked++
	l.again += tries - 1
	if err != nil {
		l.failed = append(l.failed, who+": "+err.Error())
	}
}

// end ends the load and says whether a request failed.
func (l *load) end(t testing.TB) {
	t.Helper()
	l.cancel()
	l.done.Wait()
	t.Logf("%d requests, %d of them tried again, %d failed", l.asked, l.again, len(l.failed))
	if len(l.failed) > 0 || l.asked < 100 {
		t.Errorf("%d of %d requests failed: %q", len(l.failed), l.asked, l.failed)
	}
}

// Pairs that have lived and will live so long are due.
const lived, left = 50 * time.Minute, 10 * time.Minute

// work runs the services of hosts until nothing is due there.
func (p *plane) work(hosts []*node, degradedBelow time.Duration) {
	p.Helper()
	var all sync.WaitGroup
	for _, n := range hosts {
		all.Go(func() {
			s := p.service(n, degradedBelow)
			tick := time.NewTicker(100 * time.Millisecond)
			defer tick.Stop()
			for p.Context().Err() == nil {
				if blocked, err := s.Turn(p.Context()); err == nil && blocked == "" && !p.due(n) {
					return
				}
				select {
				case <-tick.C:
				case <-p.Context().Done():
				}
			}
		})
	}
	all.Wait()
}

// due tells whether a pair of a host is due.
func (p *plane) due(n *node) bool {
	seen, err := n.client.Inspect(p.Context())
	return err != nil || len(seen.Pairs) != 3 || slices.ContainsFunc(seen.Pairs, func(f pair.Facts) bool {
		return pair.Judge(f, nil, policy, time.Now()).State != pair.OK
	})
}

func TestThreeHostsRenewOneAfterTheOtherUnderLoad(t *testing.T) {
	p := start(t, lived, left)
	p.ready()
	l := p.load()
	p.work(p.hosts, time.Hour)
	l.end(t)
	if r, k := p.records.with(" replaces: "), p.records.with(" keeps: "); len(r) != 9 || len(k) != 9 {
		t.Errorf("the signers recorded\n%s", strings.Join(p.records.with(""), "\n"))
	}
	var order []string
	for _, line := range p.records.with("pair=") {
		host, _, _ := strings.Cut(line, " ")
		order = append(order, host)
	}
	if hosts := slices.Compact(order); len(hosts) != 3 {
		t.Errorf("the hosts worked in this order: %q", hosts)
	}
	for _, n := range p.hosts {
		if n.etcd.ProcessState != nil {
			t.Errorf("etcd of %s has ended", n.name)
		}
	}
}

func TestWithAMemberDownNothingIsTouchedUntilItIsAlmostTooLate(t *testing.T) {
	p := start(t, lived, left)
	p.ready()
	down := p.hosts[2]
	must.Do(t, down.etcd.Process.Kill())
	_ = down.etcd.Wait() // it was killed
	s := p.service(p.hosts[0], time.Minute)
	wait.For(t, "the gate is shut", func() bool {
		blocked, err := s.Turn(t.Context())
		return err == nil && strings.Contains(blocked, "etcd member host-3: ")
	})
	if lines := p.records.with("replaces"); len(lines) > 0 {
		t.Errorf("something was touched: %q", lines)
	}
	p.work(p.hosts[:2], time.Hour)
	if lines := p.records.with(" keeps: "); len(lines) != 6 {
		t.Errorf("with an hour to go, two of three did %q", lines)
	}
	p.run(down)
	p.ready()
	p.work(p.hosts, time.Minute)
	if lines := p.records.with(" keeps: "); len(lines) != 9 {
		t.Errorf("when it was back, all did %q", lines)
	}
}

func TestAnExpiredClusterComesBackWithoutARestart(t *testing.T) {
	p := start(t, 2*time.Hour, -time.Hour)
	c := p.ask(p.hosts[0])
	defer c.Close()
	if _, err := c.Get(t.Context(), "x"); err == nil {
		t.Fatal("a cluster whose pairs have all ended answers")
	}
	for _, n := range p.hosts { // for clients they listen once there is a majority
		wait.For(t, n.name+" listens for peers", func() bool {
			c, err := net.Dial("tcp", n.ip+":"+peerPort)
			if err == nil {
				_ = c.Close()
			}
			return err == nil
		})
	}
	for _, n := range p.hosts {
		must.Do(t, p.onDemand(n).Run(t.Context(), nil))
	}
	renewed := time.Now()
	p.ready()
	t.Logf("after the last renewal it took %v", time.Since(renewed))
	if lines := p.records.with(" keeps: "); len(lines) != 9 {
		t.Errorf("the signers recorded %q", lines)
	}
}
