// SPDX-License-Identifier: Apache-2.0

// Package tests holds the rules of the house that a program can check, and below it the parts that
// test the product as a whole.
//
// It owns no product code. The rules look at the sources only: direct imports, package comments,
// function lengths, licence headers. What they forbid is explained in CONTRIBUTING.md.
package tests

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

const module = "github.com/node-cert-agent/node-cert-agent/"

// maxFunction is the longest function, in lines from func to its closing brace.
const maxFunction = 60

// maxLine is the longest line, in characters.
const maxLine = 120

// house says for each product package which of ours it may import. Imports point down.
var house = map[string][]string{
	"cluster/approver/verdict": {"agent/csr"},
	"cluster/approver/pending": {"cluster/approver/verdict"},
	"cluster/approver": {"agent/csr", "cluster/api/v1alpha1", "cluster/approver/pending",
		"cluster/approver/verdict"},
	"cmd/kubectl-node_certs": {"agent/pki", "agent/plan", "agent/printable", "cluster/api/v1alpha1", "cluster/approver",
		"cluster/approver/verdict", "cluster/fleet", "cluster/publisher/merge", "cmd/process"},
	"cmd/node-cert-controller": {"agent/log", "cluster/approver", "cluster/approver/verdict", "cluster/clusterapi",
		"cluster/fleet", "cluster/publisher", "cmd/process"},
	"cmd/process":    {},
	"packaging/pack": {},

	"cluster/api/generate": {},
	"cluster/api/v1alpha1": {},
	"cluster/clusterapi": {"agent/printable", "agent/secret", "cluster/api/v1alpha1", "cluster/clusterapi/etcdclient",
		"cluster/clusterapi/expiry", "cluster/clusterapi/workload", "renew/issue"},
	"cluster/clusterapi/etcdclient": {"agent/secret", "renew/issue"},
	"cluster/clusterapi/expiry":     {"cluster/api/v1alpha1"},
	"cluster/clusterapi/workload":   {"agent/apiserver", "agent/printable", "cluster/api/v1alpha1"},

	"cluster/fleet": {"agent/liveness", "agent/pki", "agent/plan", "cluster/api/v1alpha1"},
	"cluster/publisher": {"agent/pki", "agent/plan", "agent/printable", "agent/watch", "cluster/api/v1alpha1",
		"cluster/fleet", "cluster/publisher/merge"},
	"cluster/publisher/merge": {"agent/pki", "agent/plan", "agent/printable", "cluster/api/v1alpha1"},

	"agent/kubeconfig": {},
	"agent/secret":     {},
	"agent/pki":        {"agent/printable"},
	"agent/reply":      {},
	"agent/printable":  {},
	"agent/liveness":   {"agent/pki"},
	"agent/plan":       {"agent/liveness", "agent/pki", "agent/printable"},
	"agent/audit":      {"agent/liveness", "agent/pki", "agent/plan", "agent/printable", "agent/unitplan"},
	"agent/log":        {},
	"agent/check":      {"agent/plan", "agent/printable", "agent/unitplan"},
	"agent/clock":      {},
	"agent/consumers":  {"agent/audit", "agent/clock", "agent/liveness", "agent/pki", "agent/plan", "agent/report"},
	"agent/check/collect": {"agent/apiserver", "agent/check", "agent/config", "agent/identity", "agent/pki", "agent/plan",
		"agent/reloader", "agent/report", "agent/unitplan"},
	"agent/config": {"agent/csr", "agent/liveness", "agent/plan", "agent/unitplan", "packaging/profiles"},
	"agent/csr":    {},
	"agent/desired": {"agent/audit", "agent/clock", "agent/plan", "agent/printable", "agent/report",
		"agent/state"},
	"agent/disk": {"agent/plan"},
	"agent/files": {"agent/audit", "agent/clock", "agent/pki", "agent/plan", "agent/report", "agent/state",
		"agent/unitplan"},
	"agent/frame":     {},
	"agent/apiserver": {"agent/reply"},
	"agent/bootstrap": {"agent/plan", "agent/secret"},
	"agent/identity": {"agent/apiserver", "agent/audit", "agent/bootstrap", "agent/clock", "agent/csr", "agent/plan",
		"agent/printable", "agent/reply", "agent/secret"},
	"agent/probe":    {"agent/clock", "agent/liveness", "agent/pki", "agent/printable"},
	"agent/reloader": {"agent/frame", "agent/unitplan"},
	"agent/units":    {"agent/reloader", "agent/unitplan"},
	"agent/unitactions": {"agent/audit", "agent/clock", "agent/plan", "agent/printable", "agent/report",
		"agent/state", "agent/unitplan"},
	"agent/unitplan": {"agent/pki", "agent/plan", "agent/printable"},
	"agent/watch":    {"agent/clock", "agent/plan", "agent/pki", "agent/printable", "agent/reply"},
	"agent/state":    {"agent/pki", "agent/plan", "agent/unitplan"},
	"agent/report":   {"agent/liveness", "agent/plan", "agent/printable", "agent/reply", "agent/unitplan"},
	"agent/writer": {"agent/bootstrap", "agent/pki", "agent/plan", "agent/disk", "agent/frame", "agent/kubeconfig",
		"agent/printable", "agent/secret"},
	"agent": {"agent/audit", "agent/clock", "agent/consumers", "agent/desired", "agent/files", "agent/pki",
		"agent/plan", "agent/printable", "agent/report", "agent/state", "agent/unitactions", "agent/unitplan"},
	"agent/source": {"agent", "agent/apiserver", "agent/config", "agent/desired", "agent/identity", "agent/pki",
		"agent/plan", "agent/printable", "agent/report", "agent/watch"},
	"agent/agenttest": {"agent/audit", "agent/liveness", "agent/pki", "agent/plan", "agent/report",
		"agent/state", "agent/unitplan"},
	"renew/pair":    {"agent/liveness", "agent/printable"},
	"renew/inspect": {"agent/kubeconfig", "agent/secret", "renew/pair"},
	"renew/signer":  {"agent/disk", "agent/frame", "agent/secret", "renew/inspect", "renew/issue", "renew/pair", "renew/replace"},
	"renew": {"agent/clock", "agent/printable", "agent/report", "renew/etcd", "renew/gate", "renew/inspect", "renew/lock", "renew/pair",
		"renew/signer"},
	"renew/gate":          {},
	"packaging/profiles":  {},
	"renew/issue":         {"agent/secret"},
	"renew/replace":       {"agent/disk", "agent/kubeconfig", "agent/plan", "agent/secret"},
	"renew/etcd":          {"agent/printable", "renew/etcd/wire"},
	"renew/etcd/wire":     {},
	"renew/etcd/etcdtest": {"renew/etcd", "renew/etcd/wire"},
	"renew/lock":          {"agent/printable", "renew/etcd"},
	"cmd/node-cert-agent": {"agent", "agent/apiserver", "agent/audit", "agent/bootstrap", "agent/check",
		"agent/check/collect", "agent/clock", "agent/config", "agent/consumers", "agent/disk", "agent/files",
		"agent/identity", "agent/log", "agent/pki", "agent/plan", "agent/printable", "agent/probe",
		"agent/reloader", "agent/report", "agent/secret", "agent/source", "agent/state", "agent/unitactions", "agent/unitplan",
		"agent/units", "agent/watch", "agent/writer", "cmd/process", "renew", "renew/inspect", "renew/pair", "renew/replace", "renew/lock",
		"renew/signer"},
}

// only says which packages may import a library, by import path prefix.
var only = map[string][]string{
	"k8s.io/": {"agent/apiserver", "cluster/approver", "cluster/approver/pending", "cluster/approver/verdict",
		"cluster/api/v1alpha1", "cluster/clusterapi", "cluster/fleet", "cluster/publisher", "cluster/publisher/merge",
		"cmd/kubectl-node_certs", "cmd/node-cert-controller"},
	"k8s.io/api/": {"cluster/approver", "cluster/approver/verdict", "cluster/clusterapi", "cluster/publisher",
		"cmd/node-cert-controller"},
	"k8s.io/client-go/kubernetes":              {"cluster/approver", "cmd/kubectl-node_certs"},
	"k8s.io/client-go/dynamic":                 {"cluster/approver", "cluster/fleet", "cmd/kubectl-node_certs"},
	"k8s.io/client-go/metadata":                {"cluster/approver", "cluster/fleet", "cluster/publisher"},
	"github.com/google/renameio/":              {"agent/disk"},
	"github.com/coreos/go-systemd/v22/dbus":    {"agent/units"},
	"github.com/godbus/":                       {"agent/units"},
	"github.com/coreos/go-systemd/v22/journal": {"agent/audit", "agent/log"},
	"github.com/fsnotify/":                     {"agent/watch"},
	"github.com/spf13/cobra":                   {"cmd/kubectl-node_certs", "cmd/node-cert-agent", "cmd/node-cert-controller", "cmd/process"},
	"net/http": {"agent/apiserver", "agent/check/collect", "agent/identity",
		"agent/reply", "agent/report", "agent/source", "agent/watch", "cluster/approver",
		"cluster/clusterapi/workload", "cluster/fleet", "cmd/node-cert-controller", "renew", "renew/etcd", "renew/etcd/etcdtest"},
	"os/exec":                     {},
	"plugin":                      {},
	"C":                           {},
	"google.golang.org/protobuf/": {"renew/etcd/wire"},
	"github.com/coreos/go-systemd/v22/sdjournal": {},
	"github.com/coreos/go-systemd/v22/util":      {},
	"github.com/openshift/":                      {},
	"sigs.k8s.io/controller-runtime/": {"cluster/approver", "cluster/clusterapi", "cluster/fleet", "cluster/publisher",
		"cmd/node-cert-controller"},
	"github.com/prometheus/": {"cluster/approver"},
	"github.com/stretchr/":   {},
}

// pure packages decide and do not touch the world.
var pure = map[string][]string{
	"agent/plan":     {"os", "net", "net/http", "context", "syscall", "log"},
	"agent/liveness": {"os", "net", "net/http", "context", "syscall", "log"},
	"agent/unitplan": {"os", "net", "net/http", "context", "syscall", "log"},
	"agent/pki":      {"os", "net", "net/http", "context", "syscall", "log"},

	"agent/check": {"os", "net", "net/http", "context", "syscall", "log"},

	"agent/printable": {"os", "net", "net/http", "context", "syscall", "log"},

	"renew/pair":      {"os", "net/http", "context", "syscall", "log"},
	"renew/gate":      {"os", "net", "net/http", "context", "syscall", "log"},
	"renew/etcd/wire": {"os", "net", "net/http", "context", "syscall", "log"},

	"agent/kubeconfig": {"os", "net", "net/http", "context", "syscall", "log"},

	"cluster/clusterapi/etcdclient": {"os", "net", "net/http", "context", "syscall", "log", "crypto/rand"},
	"cluster/clusterapi/expiry":     {"os", "net", "net/http", "context", "syscall", "log"},

	"cluster/publisher/merge": {"os", "net", "net/http", "context", "syscall", "log"},

	"cluster/approver/pending": {"os", "net", "net/http", "context", "syscall", "log"},
	"cluster/approver/verdict": {"os", "net", "net/http", "context", "syscall", "log"},
	"agent/csr":                {"os", "net", "net/http", "context", "syscall", "log", "crypto/rand"},
	"renew/issue":              {"os", "net", "net/http", "context", "syscall", "log", "crypto/rand"},
}

// file is one parsed source file of the module.
type file struct {
	dir, name string
	syntax    *ast.File
	set       *token.FileSet
}

func (f file) test() bool { return strings.HasSuffix(f.name, "_test.go") }

// product tells the shipped code from tests and what serves them.
func (f file) product() bool { return !f.test() && !strings.HasPrefix(f.dir, "tests") }

func sources(t *testing.T) (out []file) {
	t.Helper()
	err := filepath.WalkDir("..", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && p != ".." {
			return fs.SkipDir
		}
		if !strings.HasSuffix(p, ".go") {
			return nil
		}
		set := token.NewFileSet()
		syntax, err := parser.ParseFile(set, p, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel("..", p)
		out = append(out, file{dir: path.Dir(filepath.ToSlash(rel)), name: path.Base(p), syntax: syntax, set: set})
		return nil
	})
	if err != nil || len(out) < 20 {
		t.Fatalf("found %d source files: %v", len(out), err)
	}
	return out
}

func imports(f file) (paths []string) {
	for _, i := range f.syntax.Imports {
		p, _ := strconv.Unquote(i.Path.Value)
		paths = append(paths, p)
	}
	return paths
}

func TestImportsPointDown(t *testing.T) {
	for _, f := range sources(t) {
		if suite, ok := strings.CutPrefix(f.dir, "tests/"); ok {
			suite, _, _ = strings.Cut(suite, "/")
			for _, p := range imports(f) {
				other, ok := strings.CutPrefix(p, module+"tests/")
				other, _, _ = strings.Cut(other, "/")
				if ok && other != "harness" && other != suite {
					t.Errorf("%s/%s imports %s, which is not below tests/harness", f.dir, f.name, p)
				}
			}
		}
		if !f.product() {
			continue
		}
		allowed, known := house[f.dir]
		if !known {
			t.Errorf("%s: the package has no line in the table of imports", f.dir)
			continue
		}
		for _, p := range imports(f) {
			if ours, ok := strings.CutPrefix(p, module); ok && !slices.Contains(allowed, ours) {
				t.Errorf("%s/%s imports %s", f.dir, f.name, ours)
			}
		}
	}
}

func TestLibrariesStayWhereTheyBelong(t *testing.T) {
	for _, f := range sources(t) {
		if !f.product() {
			continue
		}
		for _, p := range imports(f) {
			for prefix, dirs := range only {
				if (p == prefix || strings.HasPrefix(p, prefix)) && !slices.Contains(dirs, f.dir) && (prefix != "C" || p == "C") {
					t.Errorf("%s/%s imports %s", f.dir, f.name, p)
				}
			}
			if slices.Contains(pure[f.dir], p) {
				t.Errorf("%s/%s imports %s, and the package is pure", f.dir, f.name, p)
			}
		}
		if pure[f.dir] != nil {
			ast.Inspect(f.syntax, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "Now" {
					if x, ok := s.X.(*ast.Ident); ok && x.Name == "time" {
						t.Errorf("%s/%s reads the clock, and the package is pure", f.dir, f.name)
					}
				}
				return true
			})
		}
	}
}

// TestTheBusIsOutOfReachOfTheAgent looks at everything that the packages of the agent are linked with, and at the one
// file of the program, that of the reloader's command, that may bring the bus in.
func TestTheBusIsOutOfReachOfTheAgent(t *testing.T) {
	var packages []string
	for dir := range house {
		if strings.HasPrefix(dir, "agent") && dir != "agent/units" {
			packages = append(packages, module+dir)
		}
	}
	out, err := exec.Command("go", append([]string{"list", "-deps", "-f", "{{.ImportPath}}"},
		packages...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	n := 0
	for p := range strings.FieldsSeq(string(out)) {
		if n++; strings.HasPrefix(p, "github.com/godbus/") || p == "github.com/coreos/go-systemd/v22/dbus" ||
			p == module+"agent/units" {
			t.Errorf("the agent reaches %s", p)
		}
	}
	if n < 100 {
		t.Errorf("%d packages were looked at", n)
	}
	for _, f := range sources(t) {
		if f.dir == "cmd/node-cert-agent" && f.product() && f.name != "reloader.go" &&
			slices.Contains(imports(f), module+"agent/units") {
			t.Errorf("%s/%s imports agent/units", f.dir, f.name)
		}
	}
}

func TestFunctionsAreShort(t *testing.T) {
	for _, f := range sources(t) {
		for _, d := range f.syntax.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || f.test() {
				continue
			}
			if n := f.set.Position(fn.End()).Line - f.set.Position(fn.Pos()).Line + 1; n > maxFunction {
				t.Errorf("%s/%s: %s has %d lines", f.dir, f.name, fn.Name.Name, n)
			}
		}
	}
}

// TestLinesOfTheProductAreShort: what controller-gen reads has to be on one line.
func TestLinesOfTheProductAreShort(t *testing.T) {
	for _, f := range sources(t) {
		if !f.product() || strings.HasPrefix(f.name, "zz_generated") {
			continue
		}
		text, err := os.ReadFile(filepath.Join("..", f.dir, f.name))
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			marker := strings.HasPrefix(strings.TrimSpace(line), "// +")
			if n := utf8.RuneCountInString(line); n > maxLine && !marker {
				t.Errorf("%s/%s:%d has %d columns", f.dir, f.name, i+1, n)
			}
		}
	}
}

// TestNoTestSleeps: a test waits for what it is about, and a pause is too short on some machine.
func TestNoTestSleeps(t *testing.T) {
	for _, f := range sources(t) {
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			call, ok := n.(*ast.SelectorExpr)
			if !ok || !f.test() || call.Sel.Name != "Sleep" {
				return true
			}
			if of, ok := call.X.(*ast.Ident); ok && of.Name == "time" {
				t.Errorf("%s/%s: line %d sleeps", f.dir, f.name, f.set.Position(n.Pos()).Line)
			}
			return true
		})
	}
}

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	lines := map[string]int{}
	for _, f := range sources(t) {
		if f.test() && f.dir != "tests" {
			continue
		}
		lines[f.dir] = max(lines[f.dir], 0)
		if f.syntax.Doc != nil {
			lines[f.dir] = max(lines[f.dir], len(strings.Split(strings.TrimSpace(f.syntax.Doc.Text()), "\n")))
		}
	}
	for dir, n := range lines {
		if n < 3 {
			t.Errorf("%s: the package comment has %d lines, want at least 3", dir, n)
		}
	}
}

func TestEveryFileNamesItsLicence(t *testing.T) {
	for _, f := range sources(t) {
		if ast.IsGenerated(f.syntax) {
			continue // its generator puts a build tag before the licence
		}
		if len(f.syntax.Comments) == 0 || f.syntax.Comments[0].List[0].Text != "// SPDX-License-Identifier: Apache-2.0" {
			t.Errorf("%s/%s does not begin with its licence", f.dir, f.name)
		}
	}
}

func TestExportedNamesAreDocumented(t *testing.T) {
	for _, f := range sources(t) {
		if !f.product() || f.syntax.Name.Name == "main" {
			continue
		}
		for _, d := range f.syntax.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && d.Doc == nil && exportedReceiver(d) {
					t.Errorf("%s/%s: %s has no comment", f.dir, f.name, d.Name.Name)
				}
			case *ast.GenDecl:
				undocumented(t, f, d)
			}
		}
	}
}

func undocumented(t *testing.T, f file, d *ast.GenDecl) {
	t.Helper()
	for _, s := range d.Specs {
		switch s := s.(type) {
		case *ast.TypeSpec:
			if s.Name.IsExported() && d.Doc == nil && s.Doc == nil {
				t.Errorf("%s/%s: type %s has no comment", f.dir, f.name, s.Name.Name)
			}
		case *ast.ValueSpec:
			if s.Names[0].IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
				t.Errorf("%s/%s: %s has no comment", f.dir, f.name, s.Names[0].Name)
			}
		}
	}
}

// exportedReceiver is true for functions and for methods of exported types.
func exportedReceiver(d *ast.FuncDecl) bool {
	return d.Recv == nil || ast.IsExported(receiver(d))
}

// receiver names the type of a method, without what it is generic in.
func receiver(d *ast.FuncDecl) string {
	t := d.Recv.List[0].Type
	if p, ok := t.(*ast.StarExpr); ok {
		t = p.X
	}
	name, ok := t.(*ast.Ident)
	if !ok {
		return ""
	}
	return name.Name
}
