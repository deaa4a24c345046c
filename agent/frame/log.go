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
	// logTimeout is how long a line may take to be written.
	logTimeout = time.Second
	// Refusals are recorded one by one up to the burst, and then one in each interval: who is refused
	// costs the host no more than that of its journal.
	refusalBurst = 200
	refusalEvery = 5 * time.Second
)

// TimeoutLog is a log of the process name that does not wait for ever: a journal that takes nothing must
// not end the work (law 9 of docs/rationale.md). A Write waits a second for w, and not at all while an
// earlier one waits longer. Lines that are not taken are counted, and a line says how many when w takes lines again.
func TimeoutLog(name string, w io.Writer) io.Writer {
	return &timeoutLog{name: name, w: w, sem: make(chan struct{}, 1)}
}

type timeoutLog struct {
	name string
	w    io.Writer
	sem  chan struct{} // held while w is written to

	mu      sync.Mutex
	stuck   bool // the Write that holds sem has waited too long
	dropped int  // lines
}

// Write implements io.Writer. b holds whole lines.
func (l *timeoutLog) Write(b []byte) (int, error) {
	timeout := time.NewTimer(logTimeout)
	defer timeout.Stop()
	if l.isStuck() {
		return l.drop(b)
	}
	select {
	case l.sem <- struct{}{}:
	case <-timeout.C:
		return l.drop(b)
	}
	done := make(chan error, 1)
	go func(b []byte) {
		_, err := l.w.Write(b)
		l.mu.Lock()
		l.stuck = false
		<-l.sem
		l.mu.Unlock()
		done <- err
	}(l.text(b))
	select {
	case err := <-done:
		return len(b), err
	case <-timeout.C:
		l.mu.Lock()
		l.stuck = len(l.sem) > 0
		l.mu.Unlock()
		return 0, os.ErrDeadlineExceeded
	}
}

func (l *timeoutLog) isStuck() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stuck
}

func (l *timeoutLog) drop(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropped += bytes.Count(b, []byte("\n"))
	return 0, os.ErrDeadlineExceeded
}

// text is a copy of b, after a line that says how many were dropped before it.
func (l *timeoutLog) text(b []byte) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dropped == 0 {
		return bytes.Clone(b)
	}
	b = fmt.Appendf(nil, "<3>%s lost lines of this log: %d went to nobody\n%s", l.name, l.dropped, b)
	l.dropped = 0
	return b
}

// RateLimit bounds how often something is done: Burst times at once, and then once in each Every. Its
// zero value allows nothing. It may be used concurrently.
type RateLimit struct {
	Burst int
	Every time.Duration

	mu   sync.Mutex
	used int
	at   time.Time // when used was last reduced
}

// Allow reports whether n more may be done now, and if so counts them.
func (l *RateLimit) Allow(n int) bool { return l.allowAt(n, time.Now()) }

func (l *RateLimit) allowAt(n int, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if back := int(now.Sub(l.at) / max(l.Every, 1)); back >= l.used {
		l.used, l.at = 0, now
	} else {
		l.used, l.at = l.used-back, l.at.Add(time.Duration(back)*l.Every)
	}
	if l.used+n > l.Burst {
		return false
	}
	l.used += n
	return true
}
