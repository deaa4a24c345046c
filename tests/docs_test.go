// SPDX-License-Identifier: Apache-2.0

package tests

import (
	"fmt"
	"go/ast"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// texts are the files of the repository that people read or that name such files, by their path from its top.
func texts(t *testing.T) map[string]string {
	t.Helper()
	kinds := []string{".md", ".go", ".mod", ".yaml", ".yml", ".service", ".socket", ".conf", ".8", ".bu", ".spec"}
	out := make(map[string]string)
	err := filepath.WalkDir("..", func(p string, d fs.DirEntry, err error) error {
		switch rel, _ := filepath.Rel("..", p); {
		case err != nil:
			return err
		case d.IsDir() && (rel == ".git" || rel == "bin" || rel == "build" || rel == "dist"):
			return fs.SkipDir
		case d.Type().IsRegular() && slices.Contains(kinds, filepath.Ext(p)):
			data, err := os.ReadFile(p)
			out[filepath.ToSlash(rel)] = string(data)
			return err
		}
		return nil
	})
	if err != nil || len(out) < 100 {
		t.Fatalf("found %d texts: %v", len(out), err)
	}
	return out
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s:#]*)(?:#([^)\s]*))?\)`)
	mention = regexp.MustCompile(`\bdocs/[a-z0-9/-]+\.md\b`)
	heading = regexp.MustCompile("(?m)^#+ (.*)$")
	code    = regexp.MustCompile("(?ms)^```.*?^```$|`[^`\n]*`")
)

// anchors are the fragments by which a page's headings can be linked, as GitHub makes them.
func anchors(page string) (out []string) {
	drop := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for _, h := range heading.FindAllStringSubmatch(page, -1) {
		out = append(out, strings.ReplaceAll(drop.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-"))
	}
	return out
}

// TestEveryLinkInTheDocumentationLeadsSomewhere looks at the links of every page, and at each page that any file names.
func TestEveryLinkInTheDocumentationLeadsSomewhere(t *testing.T) {
	all, links, mentions := texts(t), 0, 0
	for name, text := range all {
		for _, m := range mention.FindAllString(text, -1) {
			if mentions++; all[m] == "" {
				t.Errorf("%s names %s, which does not exist", name, m)
			}
		}
		if filepath.Ext(name) != ".md" {
			continue
		}
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(text, ""), -1) {
			links++
			target := name
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(name), m[1])
			}
			if _, err := os.Stat(filepath.Join("..", target)); err != nil {
				t.Errorf("%s links to %s: %v", name, m[1], err)
			} else if m[2] != "" && !slices.Contains(anchors(all[target]), m[2]) {
				t.Errorf("%s links to %s#%s: no such heading", name, m[1], m[2])
			}
		}
	}
	if links < 50 || mentions < 20 {
		t.Errorf("found %d links and %d mentions", links, mentions)
	}
}

// TestTheIndexNamesEveryPage: a page that no index names is found by nobody. Decisions have an index of their own.
func TestTheIndexNamesEveryPage(t *testing.T) {
	all := texts(t)
	for name := range all {
		page, ok := strings.CutPrefix(name, "docs/")
		if !ok || page == "README.md" || strings.HasPrefix(page, "decisions/0") {
			continue
		}
		if !strings.Contains(all["docs/README.md"], "]("+page+"): ") {
			t.Errorf("docs/README.md has no line about %s", page)
		}
	}
}

// TestEveryDecisionIsNumberedAndListed compares the index of decisions with the pages, and the pages with their form.
func TestEveryDecisionIsNumberedAndListed(t *testing.T) {
	const dir = "docs/decisions/"
	all := texts(t)
	var pages []string
	for name := range all {
		if page, ok := strings.CutPrefix(name, dir); ok && page != "README.md" {
			pages = append(pages, page)
		}
	}
	slices.Sort(pages)
	status, last := regexp.MustCompile(`\nStatus: [a-z]+, (\d+ [A-Z][a-z]+ \d{4})`), ""
	for n, page := range pages {
		text, number := all[dir+page], fmt.Sprintf("%04d", n+1)
		if !strings.HasPrefix(page, number+"-") {
			t.Errorf("%s should be number %s", page, number)
		}
		parts := "\n"
		for _, h := range regexp.MustCompile(`(?m)^## .*\n`).FindAllString(text, -1) {
			parts += h
		}
		if !regexp.MustCompile(`^\n## Context\n## Decision\n(## Rejected\n)?(## Consequences\n)?$`).MatchString(parts) {
			t.Errorf("%s has the parts %q", page, parts)
		}
		m := status.FindStringSubmatch(text)
		if m == nil {
			t.Errorf("%s has no status with a date", page)
			continue
		}
		day, err := time.Parse("2 January 2006", m[1])
		date := day.Format(time.DateOnly)
		if err != nil || date < last {
			t.Errorf("%s is of %s, after one of %s: %v", page, date, last, err)
		}
		last = date
		if row := fmt.Sprintf("\n| [%s](%s) | %s | ", number, page, date); !strings.Contains(all[dir+"README.md"], row) {
			t.Errorf("the index has no line that begins with %s", row)
		}
	}
	if listed := strings.Count(all[dir+"README.md"], "\n| [0"); listed != len(pages) {
		t.Errorf("the index lists %d of %d pages", listed, len(pages))
	}
}

// TestContributingNamesEveryRule: CONTRIBUTING.md lists each rule that a test here enforces, and no other.
func TestContributingNamesEveryRule(t *testing.T) {
	page, rules := texts(t)["CONTRIBUTING.md"], 0
	for _, f := range sources(t) {
		if f.dir != "tests" {
			continue
		}
		for _, d := range f.syntax.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && strings.HasPrefix(fn.Name.Name, "Test") {
				if rules++; !strings.Contains(page, "| `"+fn.Name.Name+"` |\n") {
					t.Errorf("CONTRIBUTING.md does not say what %s enforces", fn.Name.Name)
				}
			}
		}
	}
	if listed := strings.Count(page, " | `Test"); listed != rules {
		t.Errorf("CONTRIBUTING.md lists %d rules, of %d", listed, rules)
	}
}
