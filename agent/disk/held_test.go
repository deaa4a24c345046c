// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// hold holds the pair of a tree whose top is dir.
func hold(t *testing.T, dir string) *Held {
	t.Helper()
	h, err := open(t, dir).Hold("/pki/a.key", "/pki/a.crt")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

// pki makes a tree with a pair.
func pki(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, content := range (files{"pki/a.key": "old key", "pki/a.crt": "old leaf", "pki/other": "other"}) {
		overwrite(t, filepath.Join(dir, name), content)
	}
	return dir
}

func overwrite(t *testing.T, name, content string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(content), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// renameOver replaces a file as a careful program does.
func renameOver(t *testing.T, name, content string) {
	t.Helper()
	overwrite(t, name+".theirs", content)
	if err := os.Rename(name+".theirs", name); err != nil {
		t.Fatal(err)
	}
}

func stageBoth(t *testing.T, h *Held) {
	t.Helper()
	if err := errors.Join(h.Stage(0, []byte("new key")), h.Stage(1, []byte("new leaf"))); err != nil {
		t.Fatal(err)
	}
}

func has(t *testing.T, dir, key, leaf string) {
	t.Helper()
	want := files{"pki/a.key": key, "pki/a.crt": leaf, "pki/other": "other"}
	if got := tell(t, dir); !maps.Equal(got, want) {
		t.Errorf("there is %v, want %v", got, want)
	}
}

func TestHeldFilesAreReplacedTogether(t *testing.T) {
	dir := pki(t)
	h := hold(t, dir)
	stageBoth(t, h)
	if done, err := h.Publish(); done != 2 || err != nil {
		t.Errorf("%d, %v", done, err)
	}
	h.Close()
	if left, _ := filepath.Glob(filepath.Join(dir, "pki/.a.*")); len(left) != 2 {
		t.Errorf("displaced are %q, want two files until the sweep", left)
	}
	specs := []plan.FileSpec{{Path: "/pki/a.key", UID: os.Geteuid()}, {Path: "/pki/a.crt", UID: os.Geteuid()}}
	if removed, err := open(t, dir).Sweep(specs); len(removed) != 2 || err != nil {
		t.Errorf("swept %q, %v", removed, err)
	}
	has(t, dir, "new key", "new leaf")
}

func TestWhatIsHeldAndNotPublishedLeavesNothing(t *testing.T) {
	dir := pki(t)
	h := hold(t, dir)
	stageBoth(t, h)
	stageBoth(t, h) // the second takes the place of the first
	names, _ := filepath.Glob(filepath.Join(dir, "pki/.a.*"))
	if len(names) != 2 {
		t.Errorf("staged are %q, want two names that begin with a dot", names)
	}
	h.Close()
	has(t, dir, "old key", "old leaf")
}

// TestWhatSomebodyElseChangedStays has every change between reading and publishing; the one of the same
// size within a tick of the clock, too.
func TestWhatSomebodyElseChangedStays(t *testing.T) {
	for sentence, change := range map[string]func(t *testing.T, name, content string){
		"in place": overwrite, "by a rename": renameOver,
	} {
		for name, want := range map[string][2]string{"a.key": {"THE KEY", "old leaf"}, "a.crt": {"old key", "THE KEY"}} {
			for _, staged := range []bool{false, true} {
				dir := pki(t)
				h := hold(t, dir)
				if !staged {
					change(t, filepath.Join(dir, "pki", name), "THE KEY")
				}
				stageBoth(t, h)
				if staged {
					change(t, filepath.Join(dir, "pki", name), "THE KEY")
				}
				if done, err := h.Publish(); done != 0 || !errors.Is(err, ErrChanged) {
					t.Errorf("%s of %s: %d, %v", sentence, name, done, err)
				}
				h.Close()
				has(t, dir, want[0], want[1])
			}
		}
	}
}

// TestWhatWasChangedInTheLastInstantGoesBack is about the time after the look at both files.
func TestWhatWasChangedInTheLastInstantGoesBack(t *testing.T) {
	for sentence, change := range map[string]func(t *testing.T, name, content string){
		"in place": overwrite, "by a rename": renameOver,
	} {
		dir := pki(t)
		h := hold(t, dir)
		stageBoth(t, h)
		change(t, filepath.Join(dir, "pki/a.key"), "THE KEY")
		if err := errors.Join(h.files[0].replace(), h.files[1].replace()); err != nil {
			t.Fatal(err)
		}
		if err := h.inspect(); !errors.Is(err, ErrChanged) {
			t.Errorf("%s: %v", sentence, err)
		}
		if n := h.takeBack(); n != 2 {
			t.Errorf("%s: %d were put back", sentence, n)
		}
		h.Close()
		has(t, dir, "THE KEY", "old leaf")
	}
}

func TestAFileThatIsGoneIsNotMade(t *testing.T) {
	dir := pki(t)
	h := hold(t, dir)
	stageBoth(t, h)
	if err := os.Remove(filepath.Join(dir, "pki/a.crt")); err != nil {
		t.Fatal(err)
	}
	if err := h.files[1].replace(); !errors.Is(err, ErrChanged) {
		t.Error(err)
	}
	if done, err := h.Publish(); done != 0 || !errors.Is(err, ErrChanged) {
		t.Errorf("%d, %v", done, err)
	}
	h.Close()
	if _, err := os.Stat(filepath.Join(dir, "pki/a.crt")); err == nil {
		t.Error("it was made")
	}
}

func TestADirectoryThatWasReplacedIsNotWrittenIn(t *testing.T) {
	dir := pki(t)
	h := hold(t, dir)
	stageBoth(t, h)
	if err := os.Rename(filepath.Join(dir, "pki"), filepath.Join(dir, "moved")); err != nil {
		t.Fatal(err)
	}
	overwrite(t, filepath.Join(dir, "pki/a.key"), "theirs")
	if done, err := h.Publish(); done != 0 || !errors.Is(err, ErrReplaced) {
		t.Errorf("%d, %v", done, err)
	}
}

func TestOnlyFilesThatNobodyElseCanChangeAreHeld(t *testing.T) {
	for want, change := range map[string]func(dir string) error{
		"a.key: missing": func(dir string) error { return os.Remove(filepath.Join(dir, "pki/a.key")) },
		"a.key: a symbolic link": func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, "pki/a.key")), os.Symlink("other", filepath.Join(dir, "pki/a.key")))
		},
		"a.key: a named pipe": func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, "pki/a.key")), unix.Mkfifo(filepath.Join(dir, "pki/a.key"), 0o600))
		},
		"a.key: has mode 0620, which lets others": func(dir string) error { return os.Chmod(filepath.Join(dir, "pki/a.key"), 0o620) },
		"a.crt: has mode 0602, which lets others": func(dir string) error { return os.Chmod(filepath.Join(dir, "pki/a.crt"), 0o602) },
		"directory /pki: has mode 0775, which":    func(dir string) error { return os.Chmod(filepath.Join(dir, "pki"), 0o775) },
		"directory /pki: is a symbolic link": func(dir string) error {
			return errors.Join(os.Rename(filepath.Join(dir, "pki"), filepath.Join(dir, "moved")), os.Symlink("moved", filepath.Join(dir, "pki")))
		},
		"directory /pki: is a regular file": func(dir string) error {
			return errors.Join(os.RemoveAll(filepath.Join(dir, "pki")), os.WriteFile(filepath.Join(dir, "pki"), nil, 0o600))
		},
		"more than 2097152": func(dir string) error { return os.Truncate(filepath.Join(dir, "pki/a.key"), MaxSize+1) },
		"belongs to uid 12": func(dir string) error { return chownOr(dir) },
	} {
		dir := pki(t)
		if err := change(dir); err != nil {
			t.Fatal(err)
		}
		if os.Geteuid() != 0 && want == "belongs to uid 12" {
			want = "" // nobody but root can make one
		}
		h, err := open(t, dir).Hold("/pki/a.key", "/pki/a.crt")
		if want == "" && err == nil {
			h.Close()
		} else if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for _, p := range []string{"pki/a.key", "/pki/../pki/a.key"} {
		if _, err := open(t, pki(t)).Hold(p); err == nil {
			t.Errorf("%s was held", p)
		}
	}
}

func chownOr(dir string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	return os.Chown(filepath.Join(dir, "pki/a.key"), 12, 0)
}

func TestAStagedFileOfAKilledProcessIsAdoptedIfItIsWhole(t *testing.T) {
	want := plan.DigestOf([]byte("new leaf"))
	for sentence, tt := range map[string]struct {
		name, content string
		mode          os.FileMode
		fit           bool
	}{
		"whole": {".a.crt17", "new leaf", 0o600, true}, "cut off": {".a.crt17", "new l", 0o600, false},
		"of another mode": {".a.crt17", "new leaf", 0o644, false}, "of another file": {".a.key17", "new leaf", 0o600, false},
		"no name of ours": {"a.crt17", "new leaf", 0o600, false},
	} {
		dir := pki(t)
		overwrite(t, filepath.Join(dir, "pki/.a.crt99"), "something else")
		name := filepath.Join(dir, "pki", tt.name)
		overwrite(t, name, tt.content)
		if err := os.Chmod(name, tt.mode); err != nil {
			t.Fatal(err)
		}
		h := hold(t, dir)
		if err := h.Adopt(1, want); (err == nil) != tt.fit {
			t.Errorf("%s: %v", sentence, err)
			continue
		}
		done, err := h.Publish()
		h.Close()
		got := tell(t, dir)
		if err != nil || done == 1 != tt.fit || (got["pki/a.crt"] == "new leaf") != tt.fit || (got["pki/"+tt.name] == tt.content) == tt.fit {
			t.Errorf("%s: %d, %v, there is %v", sentence, done, err, got)
		}
	}
}

func TestAnAccessListIsKept(t *testing.T) {
	dir := pki(t)
	name := filepath.Join(dir, "pki/a.key")
	// user::rw- user:12:r-- group::--- mask::r-- other::---, see acl(5) and posix_acl_xattr.h
	list := []byte{2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 4, 0, 12, 0, 0, 0, 4, 0, 0, 0, 255, 255, 255, 255,
		16, 0, 4, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255}
	if err := unix.Setxattr(name, acl, list, 0); err != nil {
		t.Fatalf("the file system of %s has none: %v", dir, err)
	}
	h := hold(t, dir)
	stageBoth(t, h)
	if _, err := h.Publish(); err != nil {
		t.Fatal(err)
	}
	var got [100]byte
	if n, err := unix.Getxattr(name, acl, got[:]); err != nil || string(got[:n]) != string(list) {
		t.Errorf("%v, %v", got[:max(n, 0)], err)
	}
}
