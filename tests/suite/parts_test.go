// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestEveryTestOnRealPartsBelongsToAPart: one that nobody runs cannot fail.
func TestEveryTestOnRealPartsBelongsToAPart(t *testing.T) {
	found := 0
	err := filepath.WalkDir("../..", func(p string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(p, "_test.go") {
			return err
		}
		text, err := os.ReadFile(p)
		if err != nil || !bytes.Contains(text, []byte("\n//go:build real")) {
			return err
		}
		found++
		dir, err := filepath.Rel("../..", filepath.Dir(p))
		if !slices.ContainsFunc(parts, func(p part) bool {
			return slices.Contains(p.args, "real") && slices.Contains(p.args, "./"+dir+"/...")
		}) {
			t.Errorf("no part runs the tests on real parts in %s", dir)
		}
		return err
	})
	if err != nil || found == 0 {
		t.Fatalf("found %d files: %v", found, err)
	}
}

// TestEveryTagIsVetted: what make test does not run, it compiles at least.
func TestEveryTagIsVetted(t *testing.T) {
	vetted := strings.Split(parts[0].args[2], ",")
	err := filepath.WalkDir("../..", func(p string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(p, "_test.go") {
			return err
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		for line := range bytes.SplitSeq(text, []byte("\n")) {
			if tag, found := bytes.CutPrefix(line, []byte("//go:build ")); found && !slices.Contains(vetted, string(tag)) {
				t.Errorf("%s: nobody vets what has the tag %s", p, tag)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
