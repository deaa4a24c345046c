// SPDX-License-Identifier: Apache-2.0

//go:build real

package renewal

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/renew/lock"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/must"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/wait"
)

func TestAHostThatLosesTheMajorityAtWorkGoesOnWhenItIsBack(t *testing.T) {
	p := start(t, lived, left)
	p.ready()
	s := p.service(p.hosts[0], time.Minute)
	s.Timeout = time.Second
	gone := p.hosts[1:]
	first := true
	look := s.Leaf
	s.Leaf = func(ctx context.Context, address string) ([]byte, error) {
		if first { // a pair has just been replaced
			first = false
			for _, n := range gone {
				must.Do(t, n.etcd.Process.Kill())
				_ = n.etcd.Wait() // it was killed
			}
		}
		return look(ctx, address)
	}
	wait.For(t, "it cannot go on", func() bool {
		blocked, err := s.Turn(t.Context())
		return !first && (blocked != "" || err != nil)
	})
	if blocked, err := s.Turn(t.Context()); blocked == "" && err == nil {
		t.Error("without a majority it goes on")
	}
	if ended := len(p.records.with(" keeps: ")) + len(p.records.with(" restores: ")); ended != len(p.records.with(" replaces: ")) {
		t.Errorf("a pair is left in between:\n%s", strings.Join(p.records.with("pair="), "\n"))
	}
	for _, n := range gone {
		p.run(n)
	}
	p.ready()
	p.release(s.Host)
	p.work(p.hosts, time.Minute)
	if h := p.holder(); h != nil {
		t.Errorf("in the end the lock is held: %+v", h)
	}
}

// holder is who has the lock.
func (p *plane) holder() *lock.Holder {
	p.Helper()
	c := p.ask(p.hosts[0])
	defer c.Close()
	h, err := lock.Look(p.Context(), c)
	must.Do(p, err)
	return h
}

// release frees the lock from a host that keeps it because a pair was not proven, as a person would.
func (p *plane) release(host string) {
	p.Helper()
	h := p.holder()
	if h == nil || h.Reason == "" {
		return
	}
	c := p.ask(p.hosts[0])
	defer c.Close()
	if h.Host != host {
		p.Errorf("the lock is that of %s", h.Host)
	}
	must.Do(p, lock.Release{By: "a-test", Reason: "a majority is back", At: time.Now()}.Apply(p.Context(), c, *h))
}

func TestAPairThatItsPeersRefuseIsRestoredAndNoOtherHostTriesItsOwn(t *testing.T) {
	p := start(t, time.Minute, 1000*time.Hour)
	p.ready()
	n := p.hosts[0]
	// It would be refused before, too: members see it when they connect anew.
	n.Pair(pki+"peer", n.CA.Issue(x509.Certificate{Subject: pkix.Name{CommonName: n.name},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		NotBefore:   time.Now().Add(-lived), NotAfter: time.Now().Add(left + left/2), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 99)}}))
	before, err := os.ReadFile(filepath.Join(n.Root, pki+"peer.key"))
	must.Do(t, err)
	s := p.service(n, time.Minute)
	s.Timeout = time.Second
	blocked, err := s.Turn(t.Context())
	if err != nil || !strings.Contains(blocked, "etcd-peer: it was not proven, and was restored") {
		t.Fatalf("%q, %v", blocked, err)
	}
	after, err := os.ReadFile(filepath.Join(n.Root, pki+"peer.key"))
	must.Do(t, err)
	if string(after) != string(before) || len(p.records.with(" restores: ")) != 1 {
		t.Errorf("the pair is another one; recorded were %q", p.records.with("pair="))
	}
	other := p.hosts[1]
	other.age(lived, left)
	blocked, err = p.service(other, time.Minute).Turn(t.Context())
	if err != nil || !strings.Contains(blocked, "held by host-1") || !strings.Contains(blocked, "was restored") ||
		len(p.records.with("host-2 <5>signer replaces")) > 0 {
		t.Errorf("the second host: %q, %v", blocked, err)
	}
	if blocked, err := s.Turn(t.Context()); err != nil || !strings.Contains(blocked, "this host holds the lock") ||
		len(p.records.with(" replaces: ")) != 1 {
		t.Errorf("the first one tries again: %q, %v", blocked, err)
	}
}
