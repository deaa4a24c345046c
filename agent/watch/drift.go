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

// Drift notices that something changed in a set of directories, whoever changed it. It tells that,
// not what: the consumer looks for itself.
//
// A directory that does not exist is awaited in its nearest existing ancestor; one that is removed,
// renamed or replaced is awaited or watched again. Not noticed are: a change by way of a file opened
// before the directory was replaced; the replacement of an ancestor of a directory that exists; and that a
// file system is mounted over a directory, or one that held it unmounted. The next Set finds all but the
// first, also with the same directories. inotify(7) needs read permission on each directory.
type Drift struct {
	quiet   time.Duration
	changed chan struct{}
	done    chan struct{}
	events  *fsnotify.Watcher

	mu      sync.Mutex
	wanted  []string
	watched map[string]interest
	pending bool // a notification is on its way
}

// interest is why a directory is watched: for everything in it, or for the coming of some names.
type interest struct {
	all     bool
	arrival map[string]bool
}

// NewDrift makes a Drift without directories. A notification comes at most twice quiet after the
// first change and stands for all changes until then.
func NewDrift(quiet time.Duration) (*Drift, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("start inotify: %v", err)
	}
	d := &Drift{quiet: quiet, changed: make(chan struct{}, 1), done: make(chan struct{}), events: w,
		watched: make(map[string]interest)}
	go d.run()
	return d, nil
}

// Changed yields once after a change, however many there were.
func (d *Drift) Changed() <-chan struct{} { return d.changed }

// Set replaces the set of directories; absolute paths. It notifies of nothing. An error names those
// that cannot be watched; the others are, and Set may be called again at any time.
func (d *Drift) Set(dirs []string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wanted = d.wanted[:0]
	for _, dir := range dirs {
		d.wanted = append(d.wanted, filepath.Clean(dir))
	}
	slices.Sort(d.wanted)
	d.wanted = slices.Compact(d.wanted)
	_, err := d.arrange()
	return err
}

// Close ends the watching. Changed stays open and silent.
func (d *Drift) Close() error {
	err := d.events.Close()
	<-d.done
	return err
}

// run takes events in gulps: after the first it rests, and the kernel gathers what follows. A commit
// of 25 files is 150 events, and would cost as many wake-ups while the writer needs the processor.
func (d *Drift) run() {
	defer close(d.done)
	var rested time.Time
	for {
		select {
		case e, ok := <-d.events.Events:
			if !ok {
				return
			}
			d.event(e)
			if time.Since(rested) > d.quiet {
				<-time.After(d.quiet)
				rested = time.Now()
			}
		case _, ok := <-d.events.Errors:
			if !ok {
				return
			}
			// The queue ran over, or inotify fails: anything may have changed.
			d.mu.Lock()
			_, _ = d.arrange()
			d.notify()
			d.mu.Unlock()
		}
	}
}

func (d *Drift) event(e fsnotify.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	dir, base := filepath.Split(e.Name)
	parent := d.watched[filepath.Clean(dir)]
	relevant := parent.all && !temporary(base)
	_, self := d.watched[e.Name]
	moved := self && (e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename))
	if moved {
		delete(d.watched, e.Name)
	}
	if moved || parent.arrival[base] && e.Has(fsnotify.Create) {
		appeared, _ := d.arrange() // what cannot be watched is said by the next Set
		relevant = relevant || appeared || moved
	}
	if relevant {
		d.notify()
	}
}

// notify lets the changes of the next moments join this one. The caller holds mu.
func (d *Drift) notify() {
	if d.pending {
		return
	}
	d.pending = true
	time.AfterFunc(d.quiet, func() {
		d.mu.Lock()
		d.pending = false
		d.mu.Unlock()
		select {
		case d.changed <- struct{}{}:
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

// arrange watches every wanted directory or its nearest existing ancestor, and nothing else. It
// reports whether a wanted directory is watched that was not before. The caller holds mu.
func (d *Drift) arrange() (appeared bool, err error) {
	next := make(map[string]interest, len(d.wanted))
	var errs []error
	for _, dir := range d.wanted {
		at, missing, err := d.nearest(dir)
		if err != nil {
			errs = append(errs, fmt.Errorf("watch %s for changes: %v", dir, err))
			continue
		}
		i := next[at]
		if missing == "" {
			i.all = true
			appeared = appeared || !d.watched[at].all
		} else {
			if i.arrival == nil {
				i.arrival = make(map[string]bool)
			}
			i.arrival[missing] = true
		}
		next[at] = i
	}
	for _, dir := range slices.Sorted(maps.Keys(d.watched)) {
		if _, ok := next[dir]; !ok {
			_ = d.events.Remove(dir) // it may have ended by itself
		}
	}
	d.watched = next
	return appeared, errors.Join(errs...)
}

// nearest begins to watch dir, or its nearest existing ancestor; missing is then the next name on the
// way to dir.
func (d *Drift) nearest(dir string) (at, missing string, err error) {
	for at = dir; ; {
		err := d.events.Add(at)
		switch {
		case err != nil && at != "/" && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)):
			at, missing = filepath.Dir(at), filepath.Base(at)
		case err != nil:
			return "", "", err
		case missing != "" && exists(filepath.Join(at, missing)):
			at, missing = dir, "" // it came between the look and the watch
		default:
			return at, missing, nil
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
