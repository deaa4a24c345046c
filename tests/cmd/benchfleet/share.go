// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// share is what a process of agents is told first: which nodes are its own. What follows are orders.
type share struct {
	First, Count int
	Dir          string // has a tree for each node
	Kubeconfig   []byte // what each node boots with, if it has no identity
}

// Orders to a process of agents. It ends when there are no more.
const (
	orderBoot = "boot" // start all agents; there is no answer
	orderHeap = "heap" // say how much memory is in use
)

// event is what a process of agents says: one of these.
type event struct {
	// Node has written the kubelet's bundle with this digest, at this time since the machine booted.
	Node  int           `json:",omitzero"`
	At    time.Duration `json:",omitzero"`
	Wrote []byte        `json:",omitempty"`
	// Heap answers orderHeap, and says first that all is prepared: the bytes that are live.
	Heap int64 `json:",omitzero"`
	// Warning is for who reads the output, and Failure ends the measurement.
	Warning string `json:",omitempty"`
	Failure string `json:",omitempty"`
}

// agents runs a share of the fleet in this process, until there are no more orders.
func agents(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	var mu sync.Mutex
	encoder := json.NewEncoder(out)
	say := func(e event) {
		mu.Lock()
		defer mu.Unlock()
		_ = encoder.Encode(e) // nobody is there to be told
	}
	orders := json.NewDecoder(in)
	var s share
	if err := orders.Decode(&s); err != nil {
		return err
	}
	fleet, err := s.prepare(say)
	if err != nil {
		return err
	}
	say(event{Heap: live()})
	for {
		var order string
		switch err := orders.Decode(&order); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case order == orderHeap:
			say(event{Heap: live()})
		case order == orderBoot:
			for _, n := range fleet {
				running.Go(func() {
					if err := n.run(ctx); err != nil {
						say(event{Failure: err.Error()})
					}
				})
			}
		default:
			return fmt.Errorf("there is no order %q", order)
		}
	}
}

// prepare makes the tree of each node.
func (s share) prepare(say func(event)) ([]*node, error) {
	fleet := make([]*node, s.Count)
	var once sync.Once
	return fleet, each(s.Count, func(i int) error {
		name := nodeName(s.First + i)
		fleet[i] = &node{name: name, root: filepath.Join(s.Dir, name),
			wrote: func(c plan.Commit) { wrote(s.First+i, c, say) },
			warn:  func(err error) { once.Do(func() { say(event{Warning: "a state object: " + err.Error()}) }) }}
		return fleet[i].prepare(s.Kubeconfig)
	})
}

// wrote tells of a commit of an agent, if it has the kubelet's bundle.
func wrote(node int, c plan.Commit, say func(event)) {
	at := systemClock{}.Uptime()
	for _, w := range c.Writes {
		if w.Field == plan.KubeAPIServerServingCAData {
			digest := sha256.Sum256(w.Data)
			say(event{Node: node, At: at, Wrote: digest[:]})
		}
	}
}

func nodeName(i int) string { return fmt.Sprintf("node-%04d", i) }

// live is the memory that this process needs.
func live() int64 {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
