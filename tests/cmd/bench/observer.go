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

// observer sees files come into place. It asks the kernel for renames and nothing else: temporary
// files would wake it in the middle of what it measures.
type observer struct {
	fd       int
	dirs     map[int32]string
	arrivals chan arrival
}

// arrival is a file that was renamed into place.
type arrival struct {
	path string
	at   time.Time
}

// newObserver watches directories until the process ends. An arrival's path begins with one of them.
func newObserver(dirs ...string) (*observer, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("start inotify: %v", err)
	}
	o := &observer{fd: fd, dirs: map[int32]string{}, arrivals: make(chan arrival, 1<<12)}
	for _, d := range dirs {
		wd, err := unix.InotifyAddWatch(fd, d, unix.IN_MOVED_TO)
		if err != nil {
			return nil, fmt.Errorf("watch %s: %v", d, err)
		}
		o.dirs[int32(wd)] = d
	}
	go o.run()
	return o, nil
}

// run blocks in read(2) on a thread of its own: the way through the runtime's poller is longer.
func (o *observer) run() {
	runtime.LockOSThread()
	buf := make([]byte, 1<<16)
	for {
		n, err := unix.Read(o.fd, buf)
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
			o.arrivals <- arrival{filepath.Join(o.dirs[e.Wd], string(bytes.TrimRight(name, "\x00"))), now}
			b = rest
		}
	}
}

// drain forgets what came until now, and tells how many that were.
func (o *observer) drain() (n int) {
	for {
		select {
		case <-o.arrivals:
			n++
		default:
			return n
		}
	}
}

// await returns when every file has come into place with the wanted content: at which moments the
// first and the last did. Content is read after the last has come, so as not to be in the way.
func (o *observer) await(ctx context.Context, want map[string][]byte) (first, last time.Time, err error) {
	came := map[string]time.Time{}
	for {
		select {
		case <-ctx.Done():
			for path := range want {
				if came[path].IsZero() {
					return first, last, fmt.Errorf("%d of %d files came, %s did not: %w", len(came), len(want), path, ctx.Err())
				}
			}
		case a := <-o.arrivals:
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
