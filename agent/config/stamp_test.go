// SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"path/filepath"
	"testing"
)

func TestTheStampChangesWithAnythingThatLoadWouldSee(t *testing.T) {
	dir := t.TempDir()
	o := Options{Root: t.TempDir(), Dirs: []string{dir}}
	file := filepath.Join(dir, "10-a.yaml")
	last, err := o.Stamp()
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		sentence string
		do       func() error
	}{
		{"a new file", func() error { return os.WriteFile(file, []byte("a"), 0o600) }},
		{"a longer file", func() error { return os.WriteFile(file, []byte("ab"), 0o600) }},
		{"another mode", func() error { return os.Chmod(file, 0o644) }},
		{"another name", func() error { return os.Rename(file, file+".yaml") }},
		{"no file", func() error { return os.Remove(file + ".yaml") }},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		now, err := o.Stamp()
		if err != nil || now == last {
			t.Errorf("%s: the stamp stayed the same, %v", step.sentence, err)
		}
		again, _ := o.Stamp()
		if last = now; again != now {
			t.Errorf("%s: the stamp changes by itself", step.sentence)
		}
	}
}
