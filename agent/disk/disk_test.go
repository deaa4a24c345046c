// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// The file system of a test is told as a map from relative path to content: a directory ends in "/",
// a link reads "-> destination", a named pipe reads "|".
type files map[string]string

func (f files) make(t testing.TB) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil { // whatever the umask made of it
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(f)) {
		p := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(p), 0o755)
		dest, link := strings.CutPrefix(f[name], "-> ")
		switch {
		case err != nil:
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(p, 0o755)
		case link:
			err = os.Symlink(strings.ReplaceAll(dest, "$DIR", dir), p)
		case f[name] == "|":
			err = syscall.Mkfifo(p, 0o644)
		default:
			err = os.WriteFile(p, []byte(f[name]), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// tell is the inverse of make; only empty directories are listed.
func tell(t testing.TB, dir string) files {
	t.Helper()
	f := files{}
	err := filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, p)
		switch e.Type() {
		case fs.ModeDir:
			if content, err := os.ReadDir(p); err != nil || len(content) > 0 {
				return err
			}
			if name != "." {
				f[name+"/"] = ""
			}
		case fs.ModeSymlink:
			dest, err := os.Readlink(p)
			f[name] = "-> " + strings.ReplaceAll(dest, dir, "$DIR")
			return err
		case fs.ModeNamedPipe:
			f[name] = "|"
		default:
			b, err := os.ReadFile(p)
			f[name] = string(b)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// spec is one file, or a directory per registry if file has a placeholder.
func spec(file string) plan.FileSpec {
	return plan.FileSpec{Field: "field", Path: file, Mode: 0o644, UID: -1, GID: -1}
}

func target(t testing.TB, file, name string) Target {
	t.Helper()
	target, err := TargetOf(spec(file), name)
	if err != nil {
		t.Fatal(err)
	}
	return target
}

func open(t testing.TB, root string) *Tree {
	t.Helper()
	tree, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func TestTargetOfRefusesWhatLeadsElsewhere(t *testing.T) {
	for sentence, c := range map[string]struct{ file, name string }{
		"a relative file":                      {"etc/ca.crt", ""},
		"an unclean file":                      {"/etc/../ca.crt", ""},
		"a path in place of a name":            {"/d/{name}/ca.crt", "../../etc/shadow"},
		"a name for a single file":             {"/etc/ca.crt", "x"},
		"no name where one is needed":          {"/d/{name}/ca.crt", ""},
		"an entry with directories of its own": {"/d/{name}/sub/ca.crt", "host"},
		"dots in place of a name":              {"/d/{name}/ca.crt", ".."},
	} {
		t.Run(sentence, func(t *testing.T) {
			if target, err := TargetOf(spec(c.file), c.name); err == nil {
				t.Errorf("got %+v, want an error", target)
			}
		})
	}
}

func TestStoreKeepsOurOwnFiles(t *testing.T) {
	dir := t.TempDir()
	tree := open(t, "/")
	name := filepath.Join(dir, "state.json")
	if _, err := tree.ReadFile(name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v, want fs.ErrNotExist", err)
	}
	for _, content := range []string{"one", "two, longer", ""} {
		if err := tree.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if b, err := tree.ReadFile(name); err != nil || string(b) != content {
			t.Errorf("read back %q, %v; want %q", b, err, content)
		}
	}
	if info, _ := os.Stat(name); info.Mode() != 0o600 {
		t.Errorf("mode %v, want 0600", info.Mode())
	}
	if err := os.Symlink("state.json", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if b, err := tree.ReadFile(filepath.Join(dir, "link")); err == nil {
		t.Errorf("read %q through a link, want an error", b)
	}
}
