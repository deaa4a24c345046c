// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAModuleThatIsNotTidyIsNamed(t *testing.T) {
	t.Setenv("GOPROXY", "off")
	for name, c := range map[string]struct{ require, want string }{
		"tidy":     {"", ""},
		"not tidy": {"\nrequire example.com/n v0.0.0\n\nreplace example.com/n => ./n\n", "-require example.com/n v0.0.0"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.Mkdir(filepath.Join(dir, "n"), 0o700); err != nil {
				t.Fatal(err)
			}
			for file, text := range map[string]string{
				"go.mod": "module example.com/m\n\ngo 1.26.0\n" + c.require, "m.go": "package m\n",
				"n/go.mod": "module example.com/n\n\ngo 1.26.0\n", "n/n.go": "package n\n",
			} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			err := tidyModule(dir)
			if c.want == "" && err != nil {
				t.Error(err)
			}
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q in it", err, c.want)
			}
		})
	}
}

func TestEveryModuleIsLookedAt(t *testing.T) {
	dirs, err := modules("../../..")
	if err != nil || len(dirs) < 7 {
		t.Errorf("found the modules %q: %v", dirs, err)
	}
}
