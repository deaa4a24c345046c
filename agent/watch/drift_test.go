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

func newDrift(t *testing.T, dirs ...string) *Drift {
	t.Helper()
	d, err := NewDrift(time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := d.Set(dirs); err != nil {
		t.Fatal(err)
	}
	return d
}

// notices carries f out and waits until the change is noticed.
func (d *Drift) notices(t *testing.T, what string, f func() error) {
	t.Helper()
	// What an earlier step left behind does not count.
	d.drain()
	if err := f(); err != nil {
		t.Fatal(err)
	}
	receive(t, d.Changed(), "notice of "+what)
}

// drain waits until no notification is on its way.
func (d *Drift) drain() {
	for {
		d.mu.Lock()
		pending := d.pending
		d.mu.Unlock()
		select {
		case <-d.changed:
		default:
			if !pending {
				return
			}
			<-d.changed
		}
	}
}

func write(path string) func() error {
	return func() error { return os.WriteFile(path, []byte(time.Now().String()), 0o644) }
}

func TestChangesOfFilesAreNoticed(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "ca.crt")
	d := newDrift(t, dir)
	d.notices(t, "a new file", write(file))
	d.notices(t, "a written file", write(file))
	d.notices(t, "a mode", func() error { return os.Chmod(file, 0o600) })
	d.notices(t, "a rename over it", func() error {
		if err := write(filepath.Join(dir, ".ca.crt123"))(); err != nil {
			return err
		}
		return os.Rename(filepath.Join(dir, ".ca.crt123"), file)
	})
	d.notices(t, "a new directory", func() error { return os.Mkdir(filepath.Join(dir, "sub"), 0o755) })
	d.notices(t, "a removal", func() error { return os.Remove(file) })
}

func TestADirectoryIsAwaited(t *testing.T) {
	top := t.TempDir()
	deep := filepath.Join(top, "a", "b", "c")
	d := newDrift(t, deep)
	d.notices(t, "the directory, made in one go", func() error { return os.MkdirAll(deep, 0o755) })
	d.notices(t, "a file in it", write(filepath.Join(deep, "x")))
	d.notices(t, "its removal", func() error { return os.RemoveAll(filepath.Join(top, "a")) })
	d.notices(t, "its return", func() error { return os.MkdirAll(deep, 0o755) })
	d.notices(t, "a file in the new one", write(filepath.Join(deep, "x")))
}

func TestAReplacedDirectoryIsWatchedAgain(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "certs.d")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	d := newDrift(t, dir)
	d.notices(t, "the replacement", func() error {
		if err := os.Rename(dir, dir+".old"); err != nil {
			return err
		}
		return os.Mkdir(dir, 0o755)
	})
	d.notices(t, "a file in the new one", write(filepath.Join(dir, "x")))
	d.notices(t, "another", write(filepath.Join(dir, "y")))
}

func TestADirectoryMovedOverIsWatchedAgain(t *testing.T) {
	top := t.TempDir()
	dir, other := filepath.Join(top, "certs.d"), filepath.Join(top, "new")
	for _, p := range []string{dir, other} {
		if err := os.Mkdir(p, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	d := newDrift(t, dir)
	d.notices(t, "the replacement", func() error { return syscall.Rename(other, dir) })
	d.notices(t, "a file in the new one", write(filepath.Join(dir, "x")))
}

func TestSetChangesWhatIsWatched(t *testing.T) {
	one, two := t.TempDir(), t.TempDir()
	d := newDrift(t, one)
	if err := d.Set([]string{two, two + "/", filepath.Join(two, "sub")}); err != nil {
		t.Fatal(err)
	}
	if got := d.events.WatchList(); len(got) != 1 || got[0] != two {
		t.Errorf("watches %v", got)
	}
	d.notices(t, "a file", write(filepath.Join(two, "x")))
	d.notices(t, "the coming of the other", func() error { return os.Mkdir(filepath.Join(two, "sub"), 0o755) })
	// The notice may still be of the file, which is more than one event to the kernel.
	for len(d.events.WatchList()) != 2 {
		receive(t, d.Changed(), "notice when both are watched")
	}
}

func TestUnwatchableDirectoriesAreNamedAndTheOthersWatched(t *testing.T) {
	good := t.TempDir()
	d := newDrift(t)
	loop := filepath.Join(t.TempDir(), "loop")
	if err := os.Symlink(loop, loop); err != nil {
		t.Fatal(err)
	}
	if err := d.Set([]string{loop, good}); err == nil {
		t.Error("a loop of links was watched")
	}
	d.notices(t, "a file", write(filepath.Join(good, "x")))
}

func TestStagedFilesAreNotNews(t *testing.T) {
	dir := t.TempDir()
	d := newDrift(t, dir)
	d.quiet = time.Hour
	for name, want := range map[string]bool{".ca.crt123456": false, ".7": false, ".ca.crt": true, "ca.crt1": true,
		"a": true} {
		d.pending = false
		d.event(fsnotify.Event{Name: filepath.Join(dir, name), Op: fsnotify.Create})
		if d.pending != want {
			t.Errorf("%s: noticed %v", name, d.pending)
		}
	}
}

func TestAReplacedAncestorIsFoundByTheNextSet(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "etc", "certs.d")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	d := newDrift(t, dir)
	if err := os.Rename(filepath.Join(top, "etc"), filepath.Join(top, "old")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := d.Set([]string{dir}); err != nil {
		t.Fatal(err)
	}
	d.notices(t, "a file in the new one", write(filepath.Join(dir, "x")))
}

func TestAChangeOfTheRootIsNoticed(t *testing.T) {
	d := newDrift(t)
	d.quiet, d.watched = time.Hour, map[string]interest{"/": {all: true}}
	d.event(fsnotify.Event{Name: "/", Op: fsnotify.Chmod})
	if !d.pending {
		t.Error("it was not noticed")
	}
}
