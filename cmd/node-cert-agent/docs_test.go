// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/node-cert-agent/node-cert-agent/agent/config"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/packaging/profiles"
)

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../..", file))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// blocks are the fenced blocks of a language in a page.
func blocks(page, language string) (out []string) {
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(page, -1) {
		out = append(out, m[1])
	}
	return out
}

func TestEveryConfigurationInTheDocumentationIsValid(t *testing.T) {
	n := 0
	for _, page := range []string{"README.md", "docs/usage/configuration.md", "docs/usage/operating.md"} {
		for i, text := range blocks(read(t, page), "yaml") {
			dir := t.TempDir()
			save(t, filepath.Join(dir, "50-site.yaml"), text)
			if _, err := config.Load(config.Options{Root: t.TempDir(), Dirs: []string{dir}}); err != nil {
				t.Errorf("%s, block %d: %v", page, i+1, err)
			}
			n++
		}
	}
	if n < 5 {
		t.Errorf("found %d blocks", n)
	}
}

func TestEveryKeyIsDocumentedWithItsDefault(t *testing.T) {
	page := read(t, "docs/usage/configuration.md")
	text, err := profiles.FS.ReadFile(profiles.Base + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	var tree map[string]any
	if err := yaml.Unmarshal(text, &tree); err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{"profile": true, "units.UNIT.enabled": true, "units.UNIT.verb": true, "units.UNIT.alsoAffects": true}
	leaves(tree, "", func(key string, value any) {
		row, rest, isRow := strings.Cut(strings.TrimPrefix(key, "rows."), ".")
		if isRow && strings.HasPrefix(key, "rows.") {
			key = "rows.ROW." + rest
		}
		documented[key] = true
		cell := "`" + fmt.Sprint(value) + "`"
		switch {
		case key == "apiVersion", value == "":
			return
		case rest == "file":
			key, cell = row, "`"+fmt.Sprint(value)+"`"
		case rest == "mode":
			cell = "`\"" + fmt.Sprint(value) + "\"`"
		}
		if !strings.Contains(page, "| `"+key+"` | "+cell+" |") {
			t.Errorf("no line says that the default of %s is %s", key, cell)
		}
	})
	for key := range documented {
		if !strings.Contains(page, "| `"+key+"` |") {
			t.Errorf("%s is not documented", key)
		}
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z]+\\.[A-Za-z.]+)` \\|").FindAllStringSubmatch(page, -1) {
		if !documented[m[1]] {
			t.Errorf("%s is documented and does not exist", m[1])
		}
	}
}

// leaves calls f for every key that has a value of its own.
func leaves(tree map[string]any, path string, f func(key string, value any)) {
	for _, k := range slices.Sorted(maps.Keys(tree)) {
		if sub, ok := tree[k].(map[string]any); ok {
			leaves(sub, path+k+".", f)
		} else {
			f(path+k, tree[k])
		}
	}
}

func TestTheTableOfMetricsIsComplete(t *testing.T) {
	var text string
	r := report.New(func(name string, data []byte) error {
		if name == report.MetricsFile {
			text = string(data)
		}
		return nil
	}, false)
	s := report.Status{State: "following", Identity: &report.Identity{State: "active"}, Files: []report.File{{Key: plan.Key{Row: plan.RootCAData}, Expires: time.Now()}}, Units: []report.Unit{{Name: "x.service"}}}
	if err := r.Publish(s); err != nil {
		t.Fatal(err)
	}
	names := func(pattern, text string) []string {
		found := map[string]bool{}
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			found[m[1]] = true
		}
		return slices.Sorted(maps.Keys(found))
	}
	published, documented := names(`(?m)^([a-z_]+)[ {]`, text), names("(?m)^\\| `([a-z_]+)` \\| (?:gauge|counter) \\|", read(t, "docs/usage/metrics.md"))
	if !slices.Equal(published, documented) || len(published) < 10 {
		t.Errorf("published are\n%q\ndocumented are\n%q", published, documented)
	}
}

func TestEveryLinkInTheDocumentationLeadsSomewhere(t *testing.T) {
	pages, err := filepath.Glob("../../docs/usage/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(pages, "../../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\]\(([^)#:]+)[^)]*\)`).FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), m[1])); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
}
