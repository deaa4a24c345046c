// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/cluster"
)

// asAgents is the argument with which this program is a process of agents.
const asAgents = "agents"

// process is one that runs a share of the fleet.
type process struct {
	*cluster.Process
	pid    int
	in     io.Closer
	orders *json.Encoder
	heap   chan int64
}

// launch starts a process of agents. If it ends before it is told to, the measurement fails.
func (e *env) launch(s share) error {
	cmd := exec.Command("/proc/self/exe", asAgents)
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	said, out := io.Pipe()
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	ended, err := cluster.Launch(cmd)
	if err != nil {
		return err
	}
	p := &process{ended, cmd.Process.Pid, in, json.NewEncoder(in), make(chan int64, 1)}
	e.processes = append(e.processes, p)
	go func() { e.fail(e.hear(said, p.heap)) }()
	go func() {
		<-p.Done()
		_ = out.Close() // it always succeeds
	}()
	return p.orders.Encode(s)
}

// hear takes in what a process of agents says, and returns why that ended.
func (e *env) hear(said io.Reader, heap chan<- int64) error {
	for events := json.NewDecoder(said); ; {
		var v event
		switch err := events.Decode(&v); {
		case errors.Is(err, io.EOF):
			return errors.New("a process of agents has ended")
		case err != nil:
			return fmt.Errorf("a process of agents says what is no event: %w", err)
		case v.Failure != "":
			return fmt.Errorf("an agent failed: %s", v.Failure)
		case v.Warning != "":
			fmt.Fprintln(os.Stderr, "  "+v.Warning)
		case v.Heap != 0:
			heap <- v.Heap
		case string(v.Wrote) == *e.want.Load():
			e.files.mark(v.Node, booted.Add(v.At))
		}
	}
}

// booted is when the machine booted, by the clock that this process measures with.
var booted = time.Now().Add(-systemClock{}.Uptime())

// expect has a node done that writes this into the kubelet's bundle.
func (e *env) expect(bundle []byte) {
	digest := sha256.Sum256(bundle)
	text := string(digest[:])
	e.want.Store(&text)
}

// order tells all processes of agents to do something.
func (e *env) order(what string) error {
	for _, p := range e.processes {
		if err := p.orders.Encode(what); err != nil {
			return err
		}
	}
	return nil
}

// heaps waits until each process of agents has said how much memory is live in it, and gives the sum.
func (e *env) heaps(ctx context.Context) (sum int64, err error) {
	for _, p := range e.processes {
		select {
		case n := <-p.heap:
			sum += n
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return sum, nil
}

// used is the time that the processes of agents have had processors: see clock_getcpuclockid(3).
func (e *env) used() (sum time.Duration, err error) {
	const scheduled = 2
	for _, p := range e.processes {
		var t unix.Timespec
		if err := unix.ClockGettime(int32(^p.pid<<3|scheduled), &t); err != nil {
			return 0, err
		}
		sum += time.Duration(t.Nano())
	}
	return sum, nil
}

// endAgents returns when no process of agents is left.
func (e *env) endAgents() {
	for _, p := range e.processes {
		_ = p.in.Close() // it reads the end in any case
	}
	for _, p := range e.processes {
		<-p.Done()
	}
}
