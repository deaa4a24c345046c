// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
)

func newWatcher(t *testing.T, dirs ...string) *FileWatcher {
	t.Helper()
	w, err := NewFileWatcher(time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := w.Set(dirs); err != nil {
		t.Fatal(err)
	}
	return w
}

// notices carries f out and waits until the change is noticed.
func (w *FileWatcher) notices(t *testing.T, what string, f func() error) {
	t.Helper()
	// What an earlier step left behind does not count.
	w.drain()
	if err := f(); err != nil {
		t.Fatal(err)
	}
	receive(t, w.Changed(), "notice of "+what)
}

// drain waits until no notification is on its way.
func (w *FileWatcher) drain() {
	for {
		w.mu.Lock()
		pending := w.pending
		w.mu.Unlock()
		select {
		case <-w.changed:
		default:
			if !pending {
				return
			}
			<-w.changed
		}
	}
}

func write(path string) func() error {
	return func() error { return os.WriteFile(path, []byte(time.Now().String()), 0o644) }
}

func TestChangesOfFilesAreNoticed(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "ca.crt")
	w := newWatcher(t, dir)
	w.notices(t, "a new file", write(file))
	w.notices(t, "a written file", write(file))
	w.notices(t, "a mode", func() error { return os.Chmod(file, 0o600) })
	w.notices(t, "a rename over it", func() error {
		if err := write(filepath.Join(dir, ".ca.crt123"))(); err != nil {
			return err
		}
		return os.Rename(filepath.Join(dir, ".ca.crt123"), file)
	})
	w.notices(t, "a new directory", func() error { return os.Mkdir(filepath.Join(dir, "sub"), 0o755) })
	w.notices(t, "a removal", func() error { return os.Remove(file) })
}

func TestADirectoryIsAwaited(t *testing.T) {
	top := t.TempDir()
	deep := filepath.Join(top, "a", "b", "c")
	w := newWatcher(t, deep)
	w.notices(t, "the directory, made in one go", func() error { return os.MkdirAll(deep, 0o755) })
	w.notices(t, "a file in it", write(filepath.Join(deep, "x")))
	w.notices(t, "its removal", func() error { return os.RemoveAll(filepath.Join(top, "a")) })
	w.notices(t, "its return", func() error { return os.MkdirAll(deep, 0o755) })
	w.notices(t, "a file in the new one", write(filepath.Join(deep, "x")))
}

func TestAReplacedDirectoryIsWatchedAgain(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "certs.d")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	w := newWatcher(t, dir)
	w.notices(t, "the replacement", func() error {
		if err := os.Rename(dir, dir+".old"); err != nil {
			return err
		}
		return os.Mkdir(dir, 0o755)
	})
	w.notices(t, "a file in the new one", write(filepath.Join(dir, "x")))
	w.notices(t, "another", write(filepath.Join(dir, "y")))
}

func TestADirectoryMovedOverIsWatchedAgain(t *testing.T) {
	top := t.TempDir()
	dir, other := filepath.Join(top, "certs.d"), filepath.Join(top, "new")
	for _, p := range []string{dir, other} {
		if err := os.Mkdir(p, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	w := newWatcher(t, dir)
	w.notices(t, "the replacement", func() error { return syscall.Rename(other, dir) })
	w.notices(t, "a file in the new one", write(filepath.Join(dir, "x")))
}

func TestSetChangesWhatIsWatched(t *testing.T) {
	one, two := t.TempDir(), t.TempDir()
	w := newWatcher(t, one)
	if err := w.Set([]string{two, two + "/", filepath.Join(two, "sub")}); err != nil {
		t.Fatal(err)
	}
	if got := w.events.WatchList(); len(got) != 1 || got[0] != two {
		t.Errorf("watches %v", got)
	}
	w.notices(t, "a file", write(filepath.Join(two, "x")))
	w.notices(t, "the coming of the other", func() error { return os.Mkdir(filepath.Join(two, "sub"), 0o755) })
	// The notice may still be of the file, which is more than one event to the kernel.
	for len(w.events.WatchList()) != 2 {
		receive(t, w.Changed(), "notice when both are watched")
	}
}

func TestUnwatchableDirectoriesAreNamedAndTheOthersWatched(t *testing.T) {
	good := t.TempDir()
	w := newWatcher(t)
	loop := filepath.Join(t.TempDir(), "loop")
	if err := os.Symlink(loop, loop); err != nil {
		t.Fatal(err)
	}
	if err := w.Set([]string{loop, good}); err == nil {
		t.Error("a loop of links was watched")
	}
	w.notices(t, "a file", write(filepath.Join(good, "x")))
}

func TestStagedFilesAreNotNews(t *testing.T) {
	dir := t.TempDir()
	w := newWatcher(t, dir)
	w.debounce = time.Hour
	for name, want := range map[string]bool{".ca.crt123456": false, ".7": false, ".ca.crt": true, "ca.crt1": true,
		"a": true} {
		w.pending = false
		w.event(fsnotify.Event{Name: filepath.Join(dir, name), Op: fsnotify.Create})
		if w.pending != want {
			t.Errorf("%s: noticed %v", name, w.pending)
		}
	}
}

func TestAReplacedAncestorIsFoundByTheNextSet(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "etc", "certs.d")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	w := newWatcher(t, dir)
	if err := os.Rename(filepath.Join(top, "etc"), filepath.Join(top, "old")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := w.Set([]string{dir}); err != nil {
		t.Fatal(err)
	}
	w.notices(t, "a file in the new one", write(filepath.Join(dir, "x")))
}

func TestAChangeOfTheRootIsNoticed(t *testing.T) {
	w := newWatcher(t)
	w.debounce, w.watched = time.Hour, map[string]watchReason{"/": {all: true}}
	w.event(fsnotify.Event{Name: "/", Op: fsnotify.Chmod})
	if !w.pending {
		t.Error("it was not noticed")
	}
}
