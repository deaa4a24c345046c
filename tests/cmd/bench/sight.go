// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sight sees files come into place. It asks the kernel for renames and nothing else: temporary
// files would wake it in the middle of what it measures.
type sight struct {
	fd       int
	dirs     map[int32]string
	arrivals chan arrival
}

// arrival is a file that was renamed into place.
type arrival struct {
	path string
	at   time.Time
}

// newSight watches directories until the process ends. An arrival's path begins with one of them.
func newSight(dirs ...string) (*sight, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("start inotify: %v", err)
	}
	s := &sight{fd: fd, dirs: map[int32]string{}, arrivals: make(chan arrival, 1<<12)}
	for _, d := range dirs {
		wd, err := unix.InotifyAddWatch(fd, d, unix.IN_MOVED_TO)
		if err != nil {
			return nil, fmt.Errorf("watch %s: %v", d, err)
		}
		s.dirs[int32(wd)] = d
	}
	go s.run()
	return s, nil
}

// run blocks in read(2) on a thread of its own: the way through the runtime's poller is longer.
func (s *sight) run() {
	runtime.LockOSThread()
	buf := make([]byte, 1<<16)
	for {
		n, err := unix.Read(s.fd, buf)
		now := time.Now()
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			panic("reading inotify: " + err.Error())
		}
		for b := buf[:n]; len(b) > 0; {
			e := (*unix.InotifyEvent)(unsafe.Pointer(&b[0]))
			name, rest := b[unix.SizeofInotifyEvent:unix.SizeofInotifyEvent+e.Len], b[unix.SizeofInotifyEvent+e.Len:]
			s.arrivals <- arrival{filepath.Join(s.dirs[e.Wd], string(bytes.TrimRight(name, "\x00"))), now}
			b = rest
		}
	}
}

// drain forgets what came until now, and tells how many that were.
func (s *sight) drain() (n int) {
	for {
		select {
		case <-s.arrivals:
			n++
		default:
			return n
		}
	}
}

// await returns when every file has come into place with the wanted content: at which moments the
// first and the last did. Content is read after the last has come, so as not to be in the way.
func (s *sight) await(ctx context.Context, want map[string][]byte) (first, last time.Time, err error) {
	came := map[string]time.Time{}
	for {
		select {
		case <-ctx.Done():
			for path := range want {
				if came[path].IsZero() {
					return first, last, fmt.Errorf("%d of %d files came, %s did not: %w", len(came), len(want), path, ctx.Err())
				}
			}
		case a := <-s.arrivals:
			if _, ok := want[a.path]; ok {
				came[a.path] = a.at
			}
		}
		if len(came) < len(want) {
			continue
		}
		for path, data := range want {
			if got, _ := os.ReadFile(path); !bytes.Equal(got, data) {
				delete(came, path) // an older version
			}
		}
		if len(came) < len(want) {
			continue
		}
		for _, at := range came {
			if first.IsZero() || at.Before(first) {
				first = at
			}
			if at.After(last) {
				last = at
			}
		}
		return first, last, nil
	}
}
