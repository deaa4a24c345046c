// SPDX-License-Identifier: Apache-2.0

package tests

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/development/dependencies.md anew")

const (
	dependencies = "../docs/development/dependencies.md"
	preface      = `# Dependencies

Written by ` + "`go test ./tests -run Dependencies -update`" + ` from every go.mod and the imports of the sources.
Only the last column is written by hand: add a line with the module and its reason, then have the rest filled in.
When a library is used at all is [a decision](../decisions/0002-dependencies.md).

`
)

// requirements are the modules that the go.mod in dir asks for itself: those it imports, and those of its tools.
func requirements(t *testing.T, dir string) (paths []string) {
	t.Helper()
	out, err := exec.Command("go", "mod", "edit", "-json", path.Join("..", dir, "go.mod")).Output()
	if err != nil {
		t.Fatalf("reading go.mod of %s: %v", dir, err)
	}
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
		Tool []struct{ Path string }
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	for _, r := range mod.Require {
		tool := false
		for _, wanted := range mod.Tool {
			tool = tool || strings.HasPrefix(wanted.Path+"/", r.Path+"/")
		}
		if (tool || !r.Indirect) && !strings.HasPrefix(r.Path+"/", module) {
			paths = append(paths, r.Path)
		}
	}
	return paths
}

// importers are the packages of the product that import a package of the library.
func importers(all []file, library string) string {
	dirs := make(map[string]bool)
	for _, f := range all {
		ofLibrary := func(p string) bool { return strings.HasPrefix(p+"/", library+"/") }
		if f.product() && slices.ContainsFunc(imports(f), ofLibrary) {
			dirs["`"+f.dir+"`"] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(dirs)), ", ")
}

func TestTheTableOfDependenciesIsWhatTheModulesSay(t *testing.T) {
	page, err := os.ReadFile(dependencies)
	if err != nil {
		t.Fatal(err)
	}
	why := make(map[string]string)
	for _, m := range regexp.MustCompile(`(?m)^\| (\S+) \|(?:.*\|)? (.+) \|$`).FindAllStringSubmatch(string(page), -1) {
		why[m[1]] = m[2]
	}
	tools := make(map[string][]string)
	for name := range texts(t) {
		if path.Base(name) == "go.mod" && path.Dir(name) != "." {
			for _, r := range requirements(t, path.Dir(name)) {
				tools[r] = append(tools[r], "`"+path.Dir(name)+"`")
			}
		}
	}
	all, want := sources(t), preface+"## What the product links\n\n| module | imported by | why |\n|---|---|---|\n"
	row := func(library, where string) {
		want += fmt.Sprintf("| %s | %s | %s |\n", library, where, why[library])
		if where == "" || why[library] == "" {
			t.Errorf("%s is imported by %q, because %q", library, where, why[library])
		}
	}
	product := requirements(t, ".")
	for _, library := range product {
		row(library, importers(all, library))
	}
	want += "\n## What tools and tests need\n\n" +
		"Each is in a module of its own, so that the product's go.mod does not name it.\n\n" +
		"| module | needed by | why |\n|---|---|---|\n"
	for _, library := range slices.Sorted(maps.Keys(tools)) {
		if !slices.Contains(product, library) {
			slices.Sort(tools[library])
			row(library, strings.Join(tools[library], ", "))
		}
	}
	if *update {
		if err := os.WriteFile(dependencies, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if string(page) != want {
		t.Errorf("docs/development/dependencies.md is not what the modules say; go test ./tests -run Dependencies -update")
	}
}
