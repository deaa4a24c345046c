// SPDX-License-Identifier: Apache-2.0

//go:build real

package disk

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// mount puts a small memory file system over dir.
func mount(t *testing.T, dir, size string) {
	t.Helper()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755,size="+size); err != nil {
		t.Fatalf("mount (this test needs root): %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
}

func TestFullDiskIsMetBeforeAnythingChanges(t *testing.T) {
	dir := t.TempDir()
	mount(t, dir, "64k")
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "a"), []byte("old"), 0o644),
		os.Mkdir(filepath.Join(dir, "certs.d"), 0o755)); err != nil {
		t.Fatal(err)
	}
	before := tell(t, dir)
	err := commit(t, dir, step{"a", "", "new", ""}, step{registries, "h", strings.Repeat("x", 100<<10), ""})
	if !errors.Is(err, unix.ENOSPC) {
		t.Errorf("error %v, want ENOSPC", err)
	}
	if got := tell(t, dir); !maps.Equal(got, before) {
		t.Errorf("now there is %v, want %v", got, before)
	}
	if err := commit(t, dir, step{"a", "", "new", ""}, step{registries, "h", "small", ""}); err != nil {
		t.Errorf("a commit that fits: %v", err)
	}
}

func TestReadOnlyFileSystemIsTold(t *testing.T) {
	dir := t.TempDir()
	mount(t, dir, "64k")
	if err := os.WriteFile(filepath.Join(dir, "a"), []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	for sentence, s := range map[string]step{"a change": {"a", "", "new", ""}, "a removal": {"a", "", "", "old"}} {
		if err := commit(t, dir, s); !errors.Is(err, ErrReadOnly) {
			t.Errorf("%s: error %v, want ErrReadOnly", sentence, err)
		}
	}
	if got := observe(t, open(t, "/"), Query{Target: target(t, filepath.Join(dir, "a"),
		"")})[0]; string(got.Data) != "old" {
		t.Errorf("the file can be read no more: %s", got.Reason)
	}
}

func TestDevicesAreNeitherOpenedNorReplaced(t *testing.T) {
	dir := t.TempDir()
	for name, kind := range map[string]uint32{"character": unix.S_IFCHR, "block": unix.S_IFBLK} {
		// Major 240 is for local use: there is no driver, to open it would fail with ENXIO.
		p := filepath.Join(dir, name)
		if err := unix.Mknod(p, kind|0o644, int(unix.Mkdev(240, 1))); err != nil {
			t.Fatalf("mknod (this test needs root): %v", err)
		}
		if got := observe(t, open(t, "/"), Query{Target: target(t, p, "")})[0]; got.Kind != plan.Irregular ||
			got.Reason != "a device" {
			t.Errorf("%s: observed %q (%s)", name, got.Kind, got.Reason)
		}
		if err := commit(t, dir, step{name, "", "new", ""}); err == nil {
			t.Errorf("%s: committed", name)
		}
		if info, err := os.Lstat(p); err != nil || info.Mode()&os.ModeDevice == 0 {
			t.Errorf("%s: now there is %v, %v", name, info, err)
		}
	}
}

// asNobody runs f with the file permissions of the user nobody. The thread ends with it.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := unix.Setfsuid(65534)
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatalf("setfsuid (this test needs root): %v", err)
	}
}

func TestMissingPermissionIsAStateWithAReason(t *testing.T) {
	dir := files{"a": "old", "hidden/a": "old", "certs.d/": ""}.make(t)
	err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(filepath.Join(dir, "a"), 0o600),
		os.Chmod(filepath.Join(dir, "hidden"), 0o700))
	if err != nil {
		t.Fatal(err)
	}
	before := tell(t, dir)
	asNobody(t, func() {
		for _, name := range []string{"a", "hidden/a"} {
			got := observe(t, open(t, "/"), Query{Target: target(t, filepath.Join(dir, name), "")})[0]
			if got.Kind != plan.Unreadable || !strings.Contains(got.Reason, "permission denied") {
				t.Errorf("%s: observed %q (%s)", name, got.Kind, got.Reason)
			}
		}
		for _, s := range []step{{"a", "", "new", ""}, {registries, "h", "new", ""}, {"a", "", "", "old"}} {
			if err := commit(t, dir, s); !errors.Is(err, os.ErrPermission) {
				t.Errorf("%s: error %v, want a missing permission", s.file, err)
			}
		}
	})
	if got := tell(t, dir); !maps.Equal(got, before) {
		t.Errorf("now there is %v, want %v", got, before)
	}
}

func TestOwnersAreGivenAndForeignLeftoversStay(t *testing.T) {
	dir := files{"a": "old", ".a1": "ours", ".a2": "the field's", ".a3": "a stranger's"}.make(t)
	if err := errors.Join(os.Chown(filepath.Join(dir, ".a2"), 1234, 0),
		os.Chown(filepath.Join(dir, ".a3"), 4321, 0)); err != nil {
		t.Fatal(err)
	}
	r := spec(filepath.Join(dir, "a"))
	r.UID, r.GID, r.Mode = 1234, 2345, 0o640
	at, err := TargetOf(r, "")
	if err != nil {
		t.Fatal(err)
	}
	tree := open(t, "/")
	if err := tree.Commit([]Change{{at, []byte("new")}}, nil); err != nil {
		t.Fatal(err)
	}
	if got := observe(t, tree, Query{Target: at})[0]; got.UID != 1234 || got.GID != 2345 || got.Mode != 0o640 {
		t.Errorf("the file has owner %d:%d and mode %v", got.UID, got.GID, got.Mode)
	}
	if removed, err := tree.Sweep([]plan.FileSpec{r}); err != nil || len(removed) != 2 {
		t.Errorf("swept %q, %v; want ours and the field's", removed, err)
	}
	if _, err := os.Stat(filepath.Join(dir, ".a3")); err != nil {
		t.Error(err)
	}
}

func TestLinkOfAnotherUserIsNotFollowed(t *testing.T) {
	dir := files{"real": "old", "link": "-> real", "theirs/link": "-> ../real"}.make(t)
	if err := errors.Join(os.Lchown(filepath.Join(dir, "link"), 1234, 0),
		os.Chown(filepath.Join(dir, "theirs"), 1234, 0)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"link", "theirs/link"} {
		at := target(t, filepath.Join(dir, name), "")
		at.FollowLink = true
		if err := open(t, "/").Commit([]Change{{at, []byte("new")}}, nil); err == nil {
			t.Errorf("%s was followed", name)
		}
	}
	if got := tell(t, dir)["real"]; got != "old" {
		t.Errorf("the file now holds %q", got)
	}
}

func TestAReaderFindsOldOrNewThroughThousandsOfRotations(t *testing.T) {
	const rotations = 2000
	looks := rotate(t, rotations)
	t.Logf("%d looks in %d rotations of 25 files", looks, rotations)
}

func TestAPrivateFileOfAnotherUserIsRefused(t *testing.T) {
	dir := files{"private/a.x": "theirs", "private/b.x": "ours"}.make(t)
	private := filepath.Join(dir, "private")
	if err := errors.Join(os.Chmod(private, 0o700), os.Chmod(private+"/a.x", 0o600), os.Chmod(private+"/b.x", 0o600),
		os.Chown(private+"/a.x", 1001, 0)); err != nil {
		t.Fatal(err)
	}
	got, err := open(t, "/").SecretFiles(private, ".x")
	if err != nil || len(got) != 2 || got[0].Refused != "belongs to uid 1001, want 0" || got[0].Data != nil ||
		string(got[1].Data) != "ours" {
		t.Errorf("read %+v, %v", got, err)
	}
	if err := os.Chown(private, 1001, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, "/").SecretFiles(private, ".x"); err == nil ||
		!strings.Contains(err.Error(), "belongs to uid 1001") {
		t.Errorf("a directory of another user: %v", err)
	}
}

func TestADirectoryThatKeepsTheWriterOutIsToldBeforeAnythingFails(t *testing.T) {
	dir := files{"certs.d/theirs/ca.crt": "theirs", "certs.d/empty/": "", "certs.d/shared/ca.crt": "theirs"}.make(t)
	var errs []error
	for name, mode := range map[string]os.FileMode{"theirs": 0o755, "empty": 0o755, "shared": 0o777} {
		p := filepath.Join(dir, "certs.d", name)
		errs = append(errs, os.Chown(p, 1001, 0), os.Chmod(p, mode))
	}
	if err := errors.Join(append(errs, os.Chmod(filepath.Dir(dir), 0o755))...); err != nil {
		t.Fatal(err)
	}
	look := func() (closed []string) {
		for _, name := range []string{"theirs", "empty", "shared", "none"} {
			if observe(t, open(t, "/"), Query{Target: target(t, filepath.Join(dir, registries), name)})[0].Closed {
				closed = append(closed, name)
			}
		}
		return closed
	}
	// Root with all its capabilities is kept out by nobody; without them it is one user among others.
	if got := look(); len(got) != 0 {
		t.Errorf("closed for root: %q", got)
	}
	asNobody(t, func() {
		if got := look(); !slices.Equal(got, []string{"theirs", "empty"}) {
			t.Errorf("closed for others: %q", got)
		}
	})
}
