// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestEveryTestOnRealPartsBelongsToAPart: one that nobody runs cannot fail.
func TestEveryTestOnRealPartsBelongsToAPart(t *testing.T) {
	found := 0
	err := filepath.WalkDir("../../..", func(p string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(p, "_test.go") {
			return err
		}
		text, err := os.ReadFile(p)
		if err != nil || !bytes.Contains(text, []byte("\n//go:build real")) {
			return err
		}
		found++
		dir, err := filepath.Rel("../../..", filepath.Dir(p))
		for _, name := range regexp.MustCompile(`(?m)^func (Test\w+)\(t `).FindAllSubmatch(text, -1) {
			if !slices.ContainsFunc(parts, func(p part) bool {
				return slices.Contains(p.args, "real") && slices.Contains(p.args, "./"+dir+"/...") && p.runs(string(name[1]))
			}) {
				t.Errorf("no part runs %s in %s", name[1], dir)
			}
		}
		return err
	})
	if err != nil || found == 0 {
		t.Fatalf("found %d files: %v", found, err)
	}
}

// runs tells whether a part leaves a test of its packages in.
func (p part) runs(test string) bool {
	i := slices.Index(p.args, "-run")
	return i < 0 || regexp.MustCompile(p.args[i+1]).MatchString(test)
}

// TestEveryTagIsVetted: what make test does not run, it compiles at least.
func TestEveryTagIsVetted(t *testing.T) {
	vetted := strings.Split(parts[0].args[2], ",")
	err := filepath.WalkDir("../../..", func(p string, d fs.DirEntry, err error) error {
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

func TestAPartIsChosenByItsName(t *testing.T) {
	seen := make(map[string]bool)
	for _, p := range parts {
		one, err := choose(p.name)
		if err != nil || len(one) != 1 || one[0].name != p.name || seen[p.name] || strings.ContainsAny(p.name, " .") {
			t.Errorf("%q chooses %v: %v", p.name, one, err)
		}
		seen[p.name] = true
	}
	if every, err := choose(""); err != nil || len(every) != len(parts) {
		t.Errorf("no name chooses %d parts: %v", len(every), err)
	}
	if _, err := choose("end"); err == nil || !strings.Contains(err.Error(), "vet, lint, tidy,") {
		t.Errorf("an unknown name: %v", err)
	}
}

// TestTheGuideNamesEveryPartAndDirectory: a part that nobody can find is not run alone.
func TestTheGuideNamesEveryPartAndDirectory(t *testing.T) {
	guide, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		begins, ends := []byte("\n| "+p.name+" | "), []byte("`make test-"+p.name+"` |\n")
		if !bytes.Contains(guide, begins) || !bytes.Contains(guide, ends) {
			t.Errorf("tests/README.md has no line about the part %s", p.name)
		}
	}
	var dirs []string
	for _, pattern := range []string{"", "cmd/", "harness/"} {
		found, err := filepath.Glob("../../" + pattern + "*")
		if err != nil || len(found) < 5 {
			t.Fatalf("below tests/%s are %q: %v", pattern, found, err)
		}
		dirs = append(dirs, found...)
	}
	for _, dir := range dirs {
		name := strings.TrimPrefix(dir, "../../")
		if info, err := os.Stat(dir); err != nil || info.IsDir() && !bytes.Contains(guide, []byte("("+name+")")) {
			t.Errorf("tests/README.md does not name the directory %s: %v", name, err)
		}
	}
}
