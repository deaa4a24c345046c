// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func own(t *testing.T) (*Directory, string) {
	t.Helper()
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "own"), 0o700); err != nil {
		t.Fatal(err)
	}
	tree, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	d, err := tree.Directory("/own")
	if err != nil {
		t.Fatal(err)
	}
	return d, filepath.Join(root, "own")
}

func TestADirectoryOfOurOwn(t *testing.T) {
	d, where := own(t)
	if _, err := d.ReadFile("missing/a"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("in a missing subdirectory: %v", err)
	}
	if names, err := d.List("blobs"); err != nil || names != nil {
		t.Errorf("a missing subdirectory lists %q, %v", names, err)
	}
	if _, err := d.ReadFile("state.json"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file reads as %v", err)
	}
	for _, name := range []string{"state.json", "blobs/a", "blobs/b"} {
		if err := d.WriteFile(name, []byte(name)); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join(where, name))
		if data, _ := d.ReadFile(name); err != nil || string(data) != name || info.Mode() != 0o600 {
			t.Errorf("%s holds %q with mode %v, %v", name, data, info.Mode(), err)
		}
	}
	if err := errors.Join(d.Rename("state.json", "state.json.bad"), d.Remove("blobs/a")); err != nil {
		t.Fatal(err)
	}
	if names, err := d.List("blobs"); err != nil || !slices.Equal(names, []string{"b"}) {
		t.Errorf("left are %q, %v", names, err)
	}
}

func TestADirectoryIsSweptOfWhatKilledProcessesLeft(t *testing.T) {
	d, where := own(t)
	_ = d.WriteFile("blobs/a", nil)
	for _, name := range []string{".state.json123", "blobs/.a9", "blobs/.keep", "state.json"} {
		if err := os.WriteFile(filepath.Join(where, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Sweep(".", "blobs", "missing"); err != nil {
		t.Fatal(err)
	}
	names, _ := d.List("blobs")
	top, _ := d.List(".")
	slices.Sort(names)
	slices.Sort(top)
	if !slices.Equal(names, []string{".keep", "a"}) || !slices.Equal(top, []string{"blobs", "state.json"}) {
		t.Errorf("left are %q and %q", top, names)
	}
}
