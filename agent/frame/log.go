// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

const (
	// logPatience is how long a line may take to be written.
	logPatience = time.Second
	// Refusals are recorded one by one up to the burst, and then one in each interval: who is refused
	// costs the host no more than that of its journal.
	refusalBurst = 200
	refusalEvery = 5 * time.Second
)

// Patient is a log of the process name that does not wait for ever: a journal that takes nothing must
// not end the work (law 9 of docs/rationale.md). A Write waits a second for w, and not at all while an
// earlier one waits longer. What is not taken is counted, and said when w takes lines again.
func Patient(name string, w io.Writer) io.Writer {
	return &patient{name: name, w: w, turn: make(chan struct{}, 1)}
}

type patient struct {
	name string
	w    io.Writer
	turn chan struct{} // held while w is written to

	mu    sync.Mutex
	stuck bool // who holds the turn has waited too long
	lost  int  // lines
}

// Write implements io.Writer. b holds whole lines.
func (p *patient) Write(b []byte) (int, error) {
	late := time.NewTimer(logPatience)
	defer late.Stop()
	if p.isStuck() {
		return p.lose(b)
	}
	select {
	case p.turn <- struct{}{}:
	case <-late.C:
		return p.lose(b)
	}
	done := make(chan error, 1)
	go func(b []byte) {
		_, err := p.w.Write(b)
		p.mu.Lock()
		p.stuck = false
		<-p.turn
		p.mu.Unlock()
		done <- err
	}(p.text(b))
	select {
	case err := <-done:
		return len(b), err
	case <-late.C:
		p.mu.Lock()
		p.stuck = len(p.turn) > 0
		p.mu.Unlock()
		return 0, os.ErrDeadlineExceeded
	}
}

func (p *patient) isStuck() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stuck
}

func (p *patient) lose(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost += bytes.Count(b, []byte("\n"))
	return 0, os.ErrDeadlineExceeded
}

// text is a copy of b, after what was lost before it.
func (p *patient) text(b []byte) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lost == 0 {
		return bytes.Clone(b)
	}
	b = fmt.Appendf(nil, "<3>%s lost lines of this log: %d went to nobody\n%s", p.name, p.lost, b)
	p.lost = 0
	return b
}

// Allowance bounds how often something is done: Burst times at once, and then once in each Every. Its
// zero value allows nothing. It may be used concurrently.
type Allowance struct {
	Burst int
	Every time.Duration

	mu   sync.Mutex
	used int
	at   time.Time // up to when used was paid back
}

// Take reports whether n more may be done now, and if so counts them.
func (a *Allowance) Take(n int) bool { return a.take(n, time.Now()) }

func (a *Allowance) take(n int, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if back := int(now.Sub(a.at) / max(a.Every, 1)); back >= a.used {
		a.used, a.at = 0, now
	} else {
		a.used, a.at = a.used-back, a.at.Add(time.Duration(back)*a.Every)
	}
	if a.used+n > a.Burst {
		return false
	}
	a.used += n
	return true
}
