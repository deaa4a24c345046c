// SPDX-License-Identifier: Apache-2.0

package etcdclient

import (
	"flag"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/must"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/wait"
)

var faults = flag.Int("faults", 200, "how many faults the hosts meet")

// TestProcessesThatAreStoppedKilledAndCutOffNeverWorkAtOnce is the model of renew/lock with real processes, signals,
// connections and leases of a second.
func TestProcessesThatAreStoppedKilledAndCutOffNeverWorkAtOnce(t *testing.T) {
	p := start(t, "--heartbeat-interval=10", "--election-timeout=100")
	dir := t.TempDir()
	var hosts []*process
	for _, name := range []string{"a", "b", "c"} {
		link := listen(t, strings.TrimPrefix(p.EtcdURL(), "https://"))
		h := &process{name: name, dir: dir, link: link, env: append(os.Environ(), envHost+"="+name, envDir+"="+dir,
			envPlane+"="+p.Dir(), envEtcd+"=https://"+link.addr)}
		h.start(t)
		t.Cleanup(func() { h.kill() })
		hosts = append(hosts, h)
	}
	renewed := func() (n int) {
		for _, h := range hosts {
			n += h.renewed()
		}
		return n
	}
	counts := map[string]int{}
	// On a slow machine most faults meet hosts that wait. They go on until enough pairs were renewed in between.
	for n := 0; n < *faults || renewed() < *faults/4; {
		if n > 20**faults {
			t.Fatalf("%v; %d pairs renewed, want %d", counts, renewed(), *faults/4)
		}
		h := hosts[rand.IntN(len(hosts))]
		if what := h.fault(t); what != "" {
			counts[what]++
			n++
		}
		<-time.After(time.Duration(rand.IntN(50)) * time.Millisecond)
		checkFailed(t, dir)
	}
	for _, h := range hosts {
		h.heal()
	}
	for _, h := range hosts {
		before := h.renewed()
		wait.For(t, h.name+" to renew again", func() bool { checkFailed(t, dir); return h.renewed() > before })
	}
	t.Logf("%v; %d pairs renewed", counts, renewed())
}

func checkFailed(t *testing.T, dir string) {
	t.Helper()
	if b, err := os.ReadFile(filepath.Join(dir, "failed")); err == nil {
		t.Fatalf("%s", b)
	}
}

// process is a host that renews.
type process struct {
	name, dir string
	env       []string
	link      *link
	cmd       *exec.Cmd
	stopped   bool
}

func (p *process) start(t *testing.T) {
	p.cmd = exec.Command(os.Args[0])
	p.cmd.Env, p.cmd.Stderr = p.env, os.Stderr
	must.Do(t, p.cmd.Start())
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	p.stopped = false
}

// fault is something that happens to the host, or what ends it, or nothing. A host stays stopped long enough for a
// lease to end, at times.
func (p *process) fault(t *testing.T) string {
	switch n := rand.IntN(10); {
	case p.stopped && n > 0:
		return ""
	case p.stopped:
		p.stopped = false
		_ = p.cmd.Process.Signal(syscall.SIGCONT)
		return "continued"
	case n < 4:
		p.stopped = true
		_ = p.cmd.Process.Signal(syscall.SIGSTOP)
		return "stopped"
	case n < 6:
		p.kill()
		p.start(t)
		return "killed"
	case p.link.cut():
		return "cut off"
	}
	p.link.join()
	return "joined"
}

func (p *process) heal() {
	p.link.join()
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
}

// renewed is how many pairs it has.
func (p *process) renewed() int {
	fi, err := os.Stat(filepath.Join(p.dir, p.name))
	if err != nil {
		return 0
	}
	return int(fi.Size())
}

// link is the way of a host to etcd. While it is cut, what is sent stays on the way, and arrives late.
type link struct {
	addr string
	mu   sync.Mutex
	gate chan struct{} // closed while the link is whole
}

func listen(t *testing.T, etcd string) *link {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must.Do(t, err)
	l := &link{addr: ln.Addr().String(), gate: make(chan struct{})}
	close(l.gate)
	t.Cleanup(func() { _ = ln.Close(); l.join() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", etcd)
			if err != nil {
				_ = conn.Close()
				continue
			}
			go l.carry(to, conn)
			go l.carry(conn, to)
		}
	}()
	return l
}

func (l *link) carry(to io.WriteCloser, from io.Reader) {
	defer func() { _ = to.Close() }()
	b := make([]byte, 16<<10)
	for {
		n, err := from.Read(b)
		l.mu.Lock()
		gate := l.gate
		l.mu.Unlock()
		<-gate
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
		if err != nil {
			return
		}
	}
}

// cut says whether it was whole.
func (l *link) cut() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.gate:
		l.gate = make(chan struct{})
		return true
	default:
		return false
	}
}

func (l *link) join() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.gate:
	default:
		close(l.gate)
	}
}
