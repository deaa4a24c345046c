// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/wait"
)

// observer sees when a file gets a content, by inotify(7), so that looking does not take the time
// that is measured.
type observer struct {
	file  string
	want  []byte
	watch *fsnotify.Watcher
	seen  chan time.Time
}

// watchFor looks at the file from now on.
func watchFor(file string, want []byte) (*observer, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	if err := w.Add(filepath.Dir(file)); err != nil {
		_ = w.Close()
		return nil, err
	}
	out := &observer{file: file, want: want, watch: w, seen: make(chan time.Time, 1)}
	go out.look()
	return out, nil
}

func (o *observer) look() {
	for range o.watch.Events { // ends with when
		if b, err := os.ReadFile(o.file); err == nil && bytes.Equal(b, o.want) {
			o.seen <- time.Now()
			return
		}
	}
}

// when is the moment at which the content was visible.
func (o *observer) when(ctx context.Context) (time.Time, error) {
	defer func() { _ = o.watch.Close() }()
	ctx, cancel := context.WithTimeout(ctx, wait.Limit)
	defer cancel()
	select {
	case t := <-o.seen:
		return t, nil
	case <-ctx.Done():
		return time.Time{}, fmt.Errorf("the new bytes in %s did not come: %w", o.file, ctx.Err())
	}
}
