// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/figures"
)

// board notes when each of n did what is waited for, once in a round.
type board struct {
	mu   sync.Mutex
	at   []time.Time
	left int
	all  chan struct{} // closed when none is left
}

// round begins one.
func (b *board) round(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at, b.left, b.all = make([]time.Time, n), n, make(chan struct{})
}

// mark notes that i did it at a time, unless it did before in this round.
func (b *board) mark(i int, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i >= len(b.at) || !b.at[i].IsZero() {
		return
	}
	b.at[i] = at
	if b.left--; b.left == 0 {
		close(b.all)
	}
}

// progress is how often it is said what is waited for.
const progress = 15 * time.Second

// wait returns when each did it, or fails after the limit.
func (b *board) wait(ctx context.Context, what string, limit time.Duration) ([]time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(progress)
	defer tick.Stop()
	b.mu.Lock()
	all := b.all
	b.mu.Unlock()
	for {
		select {
		case <-all:
			return b.at, nil
		case <-tick.C:
			fmt.Fprintf(os.Stderr, "  %s: %d of %d left, load %s\n", what, b.missing(), len(b.at), figures.Load())
		case <-ctx.Done():
			return nil, fmt.Errorf("%s: %d of %d left: %w", what, b.missing(), len(b.at), ctx.Err())
		}
	}
}

func (b *board) missing() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.left
}
