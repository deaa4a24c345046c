// SPDX-License-Identifier: Apache-2.0

package disk_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/agent/disk"
)

func TestPrivateFiles(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "d")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	tree, err := disk.Open(root)
	must(err)
	if files, err := tree.SecretFiles("/d", ".x"); err != nil || len(files) != 0 {
		t.Errorf("no directory: %v, %v", files, err)
	}
	must(os.Mkdir(dir, 0o700))
	for name, mode := range map[string]os.FileMode{"b.x": 0o600, "a.x": 0o400, "group.x": 0o640, "others.x": 0o604,
		".hidden.x": 0o600, "other.y": 0o600} {
		must(os.WriteFile(filepath.Join(dir, name), []byte(name), mode))
	}
	must(os.Symlink("a.x", filepath.Join(dir, "link.x")))
	must(os.Mkdir(filepath.Join(dir, "dir.x"), 0o700))
	must(os.WriteFile(filepath.Join(dir, "large.x"), make([]byte, 1<<20+1), 0o600))
	files, err := tree.SecretFiles("/d", ".x")
	must(err)
	want := map[string]string{"a.x": "", "b.x": "", "dir.x": "a directory", "group.x": "has mode 0640",
		"large.x": "more than 524288",
		"link.x":  "a symbolic link", "others.x": "has mode 0604"}
	last := ""
	for _, f := range files {
		why, ok := want[f.Name]
		if !ok || f.Name <= last || !strings.Contains(f.Refused, why) || (why == "") != (string(f.Data) == f.Name) {
			t.Errorf("%s after %q: %q, refused %q, want %q", f.Name, last, f.Data, f.Refused, why)
		}
		last = f.Name
	}
	if len(files) != len(want) {
		t.Errorf("%d files, want %d", len(files), len(want))
	}
	must(os.Chmod(dir, 0o750))
	if _, err := tree.SecretFiles("/d", ".x"); err == nil || !strings.Contains(err.Error(), "has mode 0750") {
		t.Errorf("a directory open to the group: %v", err)
	}
}
