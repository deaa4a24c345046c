// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/figures"
)

const (
	annotations      = 50
	rotationsWatched = 60
)

// steady is what the agent leaves alone: files when nothing of theirs changed, and the presence of a
// file while it is replaced.
func steady(ctx context.Context, e *env, _ plan, t *figures.Table) error {
	writes, err := e.unchanged(ctx)
	if err != nil {
		return err
	}
	t.Judge(fmt.Sprintf("files written in %d changes of nothing", annotations), float64(writes), 0, "")
	absent, looks, err := e.absence(ctx)
	if err != nil {
		return err
	}
	t.Judge(fmt.Sprintf("looks that found a file absent, of %d in %d changes of all", looks, rotationsWatched),
		float64(absent), 0, "")
	return nil
}

// unchanged counts files that were written while only an annotation of the object changed.
func (e *env) unchanged(ctx context.Context) (writes int, err error) {
	a := e.arms[1]
	want := a.want(a.content.Spec)
	pause(ctx, settling)
	before, err := stamps(want)
	if err != nil {
		return 0, err
	}
	e.observer.drain()
	for i := range annotations {
		version, err := a.store.Annotate(ctx, "bench", strconv.Itoa(i))
		if err != nil {
			return 0, err
		}
		if err := e.processed(ctx, version); err != nil {
			return 0, err
		}
	}
	pause(ctx, settling) // for what comes late
	after, err := stamps(want)
	if err != nil {
		return 0, err
	}
	for path, s := range before {
		if after[path] != s {
			writes++
		}
	}
	return max(writes, e.observer.drain()), nil
}

// stamp changes with every write of a file.
type stamp struct {
	inode   uint64
	changed syscall.Timespec
}

func stamps(files map[string][]byte) (map[string]stamp, error) {
	out := map[string]stamp{}
	for path := range files {
		info, err := os.Lstat(path)
		if err != nil {
			return nil, err
		}
		st := info.Sys().(*syscall.Stat_t)
		out[path] = stamp{st.Ino, st.Ctim}
	}
	return out, nil
}

// absence looks at every file, over and over, while all of them are replaced.
func (e *env) absence(ctx context.Context) (absent, looks int, err error) {
	a := e.arms[1]
	var paths []string
	for path := range a.want(a.content.Spec) {
		paths = append(paths, path)
	}
	done, watching := make(chan struct{}), make(chan struct{})
	var failure error
	go func() {
		defer close(watching)
		for {
			select {
			case <-done:
				return
			default:
			}
			for _, path := range paths {
				var st unix.Stat_t
				err := unix.Stat(path, &st)
				if looks++; errors.Is(err, fs.ErrNotExist) {
					absent++
				} else if err != nil {
					failure = err
				}
			}
		}
	}()
	for range rotationsWatched {
		e.observer.drain()
		spec := a.content.RotateAll()
		if _, err = a.store.Patch(ctx, spec); err != nil {
			break
		}
		if _, _, err = e.await(ctx, a.want(spec)); err != nil {
			break
		}
	}
	close(done)
	<-watching
	return absent, looks, errors.Join(err, failure)
}
