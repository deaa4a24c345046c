// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

// FileWatcher notices that something changed in a set of directories, whoever changed it. It tells that,
// not what: the consumer looks for itself.
//
// A directory that does not exist is awaited in its nearest existing ancestor; one that is removed,
// renamed or replaced is awaited or watched again. Not noticed are: a change by way of a file opened
// before the directory was replaced; the replacement of an ancestor of a directory that exists; and that a
// file system is mounted over a directory, or one that held it unmounted. The next Set finds all but the
// first, also with the same directories. inotify(7) needs read permission on each directory.
type FileWatcher struct {
	debounce time.Duration
	changed  chan struct{}
	done     chan struct{}
	events   *fsnotify.Watcher

	mu      sync.Mutex
	wanted  []string
	watched map[string]watchReason
	pending bool // a notification is on its way
}

// watchReason is why a directory is watched: for everything in it, or for the creation of some names.
type watchReason struct {
	all     bool
	arrival map[string]bool
}

// NewFileWatcher makes a FileWatcher without directories. A notification comes at most twice debounce after the
// first change and stands for all changes until then.
func NewFileWatcher(debounce time.Duration) (*FileWatcher, error) {
	events, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("start inotify: %v", err)
	}
	w := &FileWatcher{debounce: debounce, changed: make(chan struct{}, 1), done: make(chan struct{}), events: events,
		watched: make(map[string]watchReason)}
	go w.run()
	return w, nil
}

// Changed yields once after a change, however many there were.
func (w *FileWatcher) Changed() <-chan struct{} { return w.changed }

// Set replaces the set of directories; absolute paths. It notifies of nothing. An error names those
// that cannot be watched; the others are, and Set may be called again at any time.
func (w *FileWatcher) Set(dirs []string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wanted = w.wanted[:0]
	for _, dir := range dirs {
		w.wanted = append(w.wanted, filepath.Clean(dir))
	}
	slices.Sort(w.wanted)
	w.wanted = slices.Compact(w.wanted)
	_, err := w.rewatch()
	return err
}

// Close ends the watching. Changed stays open and silent.
func (w *FileWatcher) Close() error {
	err := w.events.Close()
	<-w.done
	return err
}

// run debounces events: after the first it rests, and the kernel queues what follows. A commit of 25 files is 150
// events, and would cost as many wake-ups while the writer needs the processor.
func (w *FileWatcher) run() {
	defer close(w.done)
	var rested time.Time
	for {
		select {
		case e, ok := <-w.events.Events:
			if !ok {
				return
			}
			w.event(e)
			if time.Since(rested) > w.debounce {
				<-time.After(w.debounce)
				rested = time.Now()
			}
		case _, ok := <-w.events.Errors:
			if !ok {
				return
			}
			// The queue ran over, or inotify fails: anything may have changed.
			w.mu.Lock()
			_, _ = w.rewatch()
			w.notify()
			w.mu.Unlock()
		}
	}
}

func (w *FileWatcher) event(e fsnotify.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	dir, base := filepath.Split(e.Name)
	parent := w.watched[filepath.Clean(dir)]
	relevant := parent.all && !temporary(base)
	_, self := w.watched[e.Name]
	moved := self && (e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename))
	if moved {
		delete(w.watched, e.Name)
	}
	if moved || parent.arrival[base] && e.Has(fsnotify.Create) {
		appeared, _ := w.rewatch() // what cannot be watched is said by the next Set
		relevant = relevant || appeared || moved
	}
	if relevant {
		w.notify()
	}
}

// notify lets the changes of the next moments join this one. The caller holds mu.
func (w *FileWatcher) notify() {
	if w.pending {
		return
	}
	w.pending = true
	time.AfterFunc(w.debounce, func() {
		w.mu.Lock()
		w.pending = false
		w.mu.Unlock()
		select {
		case w.changed <- struct{}{}:
		default:
		}
	})
}

// temporary tells the names under which files are staged beside their final place: a dot, the final
// name, digits. Their coming and going changes nothing, and a commit of ours causes many.
func temporary(base string) bool {
	if !strings.HasPrefix(base, ".") { // "" is a change of the root itself
		return false
	}
	last := base[len(base)-1]
	return last >= '0' && last <= '9'
}

// rewatch watches every wanted directory or its nearest existing ancestor, and nothing else. It
// reports whether a wanted directory is watched that was not before. The caller holds mu.
func (w *FileWatcher) rewatch() (appeared bool, err error) {
	next := make(map[string]watchReason, len(w.wanted))
	var errs []error
	for _, dir := range w.wanted {
		at, missing, err := w.nearest(dir)
		if err != nil {
			errs = append(errs, fmt.Errorf("watch %s for changes: %v", dir, err))
			continue
		}
		i := next[at]
		if missing == "" {
			i.all = true
			appeared = appeared || !w.watched[at].all
		} else {
			if i.arrival == nil {
				i.arrival = make(map[string]bool)
			}
			i.arrival[missing] = true
		}
		next[at] = i
	}
	for _, dir := range slices.Sorted(maps.Keys(w.watched)) {
		if _, ok := next[dir]; !ok {
			_ = w.events.Remove(dir) // it may have ended by itself
		}
	}
	w.watched = next
	return appeared, errors.Join(errs...)
}

// nearest begins to watch dir, or its nearest existing ancestor; missing is then the next name on the
// way to dir.
func (w *FileWatcher) nearest(dir string) (at, missing string, err error) {
	for at = dir; ; {
		err := w.events.Add(at)
		switch {
		case err != nil && at != "/" && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)):
			at, missing = filepath.Dir(at), filepath.Base(at)
		case err != nil:
			return "", "", err
		case missing != "" && exists(filepath.Join(at, missing)):
			at, missing = dir, "" // it was made before the watch began
		default:
			return at, missing, nil
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
