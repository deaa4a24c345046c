// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// shipped are the entries of both descriptions, of all formats.
func shipped(t *testing.T) (out []entry) {
	t.Helper()
	for _, file := range []string{"../nfpm.yaml", "../nfpm-controller.yaml"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var d struct{ Contents []entry }
		if err := yaml.Unmarshal(text, &d); err != nil {
			t.Fatal(err)
		}
		out = append(out, d.Contents...)
	}
	return out
}

func TestEveryFileThatMirrorsAHostIsPackagedWhereItBelongs(t *testing.T) {
	all := shipped(t)
	n := 0
	for _, tree := range []string{"systemd", "deb/tree", "packaging/controller"} {
		err := filepath.WalkDir(filepath.Join("../..", tree), func(p string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			n++
			source, _ := filepath.Rel("../..", p)
			to := strings.TrimPrefix(source, tree)
			if !slices.ContainsFunc(all, func(e entry) bool { return e.Source == source && e.Destination == to }) {
				t.Errorf("%s is not in packaging/nfpm*.yaml as %s", source, to)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if n < 8 {
		t.Errorf("found %d files", n)
	}
}

func TestAPackageHasVendorFilesOnly(t *testing.T) {
	for _, e := range shipped(t) {
		if !strings.HasPrefix(e.Destination, "/usr/") {
			t.Errorf("%s is not below /usr", e.Destination)
		}
		if e.Source != "" && !strings.HasPrefix(e.Source, "build/") {
			if _, err := os.Stat(filepath.Join("../..", e.Source)); err != nil {
				t.Errorf("%s: %v", e.Destination, err)
			}
		}
	}
	profiles, err := filepath.Glob("../profiles/*.yaml")
	if err != nil || len(profiles) == 0 {
		t.Fatal(err)
	}
	for _, p := range profiles {
		to := "/usr/share/node-cert-agent/profiles/" + filepath.Base(p)
		if !slices.ContainsFunc(shipped(t), func(e entry) bool { return e.Destination == to }) {
			t.Errorf("the profile %s is not packaged", to)
		}
	}
}
