// SPDX-License-Identifier: Apache-2.0

package tests

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// testNames are the names of all test and fuzz functions of the repository.
func testNames(t *testing.T) map[string]bool {
	names := map[string]bool{}
	for _, f := range sources(t) {
		if !f.test() {
			continue
		}
		for _, d := range f.syntax.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
				names[fn.Name.Name] = true
			}
		}
	}
	return names
}

func TestEveryDefectOfTheWriterBeforeUsHasItsTest(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "docs", "decisions", "0012-defects-of-the-writer.md"))
	if err != nil {
		t.Fatal(err)
	}
	exists := testNames(t)
	rows := regexp.MustCompile(`(?m)^\| (D[0-9]+) \|(.*)\|$`).FindAllStringSubmatch(string(text), -1)
	if len(rows) != 25 {
		t.Errorf("%d rows, want D1 to D25", len(rows))
	}
	for _, row := range rows {
		cells := strings.Split(row[2], " | ")
		if len(cells) != 3 {
			t.Errorf("%s has %d cells, want 3 after its name", row[1], len(cells))
			continue
		}
		named := regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9]+)`").FindAllStringSubmatch(cells[2], -1)
		for _, n := range named {
			if !exists[n[1]] {
				t.Errorf("%s: there is no %s", row[1], n[1])
			}
		}
		if len(named) == 0 {
			t.Errorf("%s names no test", row[1])
		}
	}
}
