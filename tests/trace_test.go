// SPDX-License-Identifier: Apache-2.0

package tests

import (
	"go/ast"
	"os"
	"regexp"
	"strings"
	"testing"
)

var quoted = regexp.MustCompile("`([A-Za-z.]+)`")

// TestTheTraceNamesWhatExists: whoever follows one change through ARCHITECTURE.md finds each function that it names.
func TestTheTraceNamesWhatExists(t *testing.T) {
	text, err := os.ReadFile("../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, trace, found := strings.Cut(string(text), "\n## One change")
	trace, _, ended := strings.Cut(trace, "\n## ")
	if !found || !ended {
		t.Fatal("ARCHITECTURE.md has no trace of one change")
	}
	declared, named := declarations(t), 0
	for _, m := range quoted.FindAllStringSubmatch(trace, -1) {
		if strings.HasSuffix(m[1], ".json") || strings.HasSuffix(m[1], ".prom") {
			continue
		}
		named++
		if !declared[m[1]] {
			t.Errorf("the trace names %s, which does not exist", m[1])
		}
	}
	if named < 15 {
		t.Errorf("the trace names %d functions and types", named)
	}
}

// declarations are the names of the product's functions, types and methods, as somebody would write them.
func declarations(t *testing.T) map[string]bool {
	t.Helper()
	names := make(map[string]bool)
	add := func(f file, name ...string) {
		for at := range name {
			names[strings.Join(name[at:], ".")] = true
		}
		names[f.syntax.Name.Name+"."+strings.Join(name, ".")] = true
	}
	for _, f := range sources(t) {
		if !f.product() {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv == nil {
					add(f, n.Name.Name)
				} else {
					add(f, receiver(n), n.Name.Name)
				}
			case *ast.TypeSpec:
				add(f, n.Name.Name)
			}
			return true
		})
	}
	return names
}
