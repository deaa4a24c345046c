// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"time"

	keep "github.com/node-cert-agent/node-cert-agent/agent/identity"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/bootstrap"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/wallclock"
)

// process is one life of the agent, and all that it sees of the host. After its death nothing that it still
// does has an effect.
type process struct {
	w      *env
	keeper *keep.Manager
	alive  bool
	left   int // contacts until it is killed; 0: it is not
	cause  string
	began  time.Time
	status keep.Status
	heard  string // the hint that it was told last
	conns  []net.Conn
	pins   []string        // as configured when it began
	proven map[string]bool // serial numbers that a server has known it by
	// verified is whose server certificate the watch has met and believed.
	verified *testpki.Authority
	cancel   context.CancelFunc
	done     chan struct{}
}

// killed is what a contact panics with when the process dies there.
type killed struct{}

// start begins another life. The lock is not held.
func (w *env) start() {
	if w.process != nil && w.process.alive {
		return
	}
	w.process.reap()
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{w: w, alive: true, began: time.Now(), cancel: cancel, done: make(chan struct{}),
		proven: map[string]bool{}}
	w.lives++
	random := rand.New(rand.NewPCG(w.seed, uint64(w.lives)))
	if w.setting.Pins {
		p.pins = slices.Clone(w.pins)
	}
	p.keeper = keep.New(keep.Options{Node: node, Lifetime: w.setting.Life, Dir: p, Bootstrap: p, Pins: p.pins,
		FollowHint: w.setting.Hints, Trail: p, Clock: p, Rand: random.Float64, Dial: p.dial})
	w.process = p
	w.event()
	go func() {
		defer close(p.done)
		defer func() {
			if r := recover(); r != nil && r != (killed{}) {
				panic(r)
			}
		}()
		p.keeper.Run(ctx)
	}()
}

// reap ends whatever is left of a life. The lock is not held.
func (p *process) reap() {
	if p == nil {
		return
	}
	p.w.mu.Lock()
	p.alive = false
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
	p.w.mu.Unlock()
	p.cancel()
	<-p.done
}

// dies counts a contact, and reports whether the process is dead, be it by this one. The lock is held.
func (p *process) dies(what string) bool {
	if p == nil || !p.alive {
		return true
	}
	if p.w.busy() {
		p.alive, p.cause = false, "too busy"
	}
	if p.left > 0 {
		if p.left--; p.left == 0 {
			p.alive, p.cause = false, what
			p.w.event()
			for _, c := range p.conns {
				_ = c.Close()
			}
		}
	}
	return !p.alive
}

// contact is a contact of the keeper's own goroutine.
func (p *process) contact(what string) {
	p.w.mu.Lock()
	dead := p.dies(what)
	p.w.mu.Unlock()
	if dead {
		panic(killed{})
	}
}

// ReadFile implements identity.Dir, as the methods that follow do.
func (p *process) ReadFile(name string) ([]byte, error) {
	p.contact("read " + name)
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	b, ok := p.w.dir[name]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return b, nil
}

var errFull = errors.New("no space left on device")

// WriteFile replaces a file.
func (p *process) WriteFile(name string, data []byte) error {
	p.contact("before write " + name)
	err := p.w.write(name, data)
	p.contact("after write " + name)
	return err
}

// Rename renames one.
func (p *process) Rename(from, to string) error {
	p.contact("rename " + from)
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if _, ok := p.w.dir[from]; !ok {
		return &fs.PathError{Op: "rename", Path: from, Err: fs.ErrNotExist}
	}
	p.w.gone(from)
	p.w.dir[to] = p.w.dir[from]
	delete(p.w.dir, from)
	return nil
}

// Remove removes one.
func (p *process) Remove(name string) error {
	p.contact("before remove " + name)
	p.w.mu.Lock()
	if _, there := p.w.dir[name]; there {
		p.w.gone(name)
	}
	delete(p.w.dir, name)
	p.w.mu.Unlock()
	p.contact("after remove " + name)
	return nil
}

// Bootstrap implements identity.Bootstrap, as Consume does.
func (p *process) Bootstrap(context.Context) ([]bootstrap.Credential, error) {
	p.contact("bootstrap")
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if p.w.closed {
		return nil, errors.New("the writer is away")
	}
	var files []bootstrap.Credential
	for _, f := range p.w.files {
		files = append(files, f.Credential)
	}
	return files, nil
}

// Consume takes a file away that has served.
func (p *process) Consume(_ context.Context, digest plan.Digest) (string, error) {
	p.contact("before consume")
	p.w.mu.Lock()
	done, err := p.w.consume(digest)
	p.w.mu.Unlock()
	p.contact("after consume")
	return done, err
}

// Record implements identity.Recorder.
func (p *process) Record(r audit.Record) {
	p.contact("record")
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.w.logf("record %s", r.Kind.Name)
}

// Now implements clock.Clock. It is asked on other goroutines, too, which must not panic.
func (p *process) Now() time.Time {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	return wallclock.Stamp(time.Now().Add(p.w.offset), time.Since(p.w.began))
}

// After implements clock.Clock.
func (p *process) After(d time.Duration) <-chan time.Time {
	p.contact("rest")
	return time.After(d)
}

// dial connects to whoever is at the address.
func (p *process) dial(_ context.Context, _, address string) (net.Conn, error) {
	p.w.mu.Lock()
	host, _, _ := strings.Cut(address, ".")
	c := p.w.clusters[host]
	if !p.alive || c == nil || c.down {
		p.w.mu.Unlock()
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errRefused}
	}
	p.w.mu.Unlock()
	end, err := c.listener.dial()
	if err != nil {
		return nil, err
	}
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.conns = append(p.conns, end)
	return end, nil
}
