// SPDX-License-Identifier: Apache-2.0

// Command suite runs every test of the project, part by part, and prints the minutes and the number
// of tests of each. It is what `make test` calls; `make test-NAME` runs the part of that name. A part fails if a test
// fails or is skipped, if its packages do not build, or if it runs no test at all.
//
// What a part needs, make builds before the first part runs.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// part is one line of the summary.
type part struct {
	name  string   // a word, for `make test-NAME`
	args  []string // of `go`
	env   []string // beside that of this process
	needs []string // targets of make
	// check is what the part does in place of running go.
	check func() error
	// json is set if the output is that of go test -json.
	json bool
}

// newestGo is the newest Go of the module proxy (go list -m -versions golang.org/toolchain). What ships is built with
// the one that is installed; what the next one changes is found here first.
const newestGo = "go1.27.4"

// What the parts need: Debian's packages, a control plane, the root file systems of hosts.
var (
	tools = []string{"packages"}
	plane = []string{"controlplane"}
	roots = []string{"build", "host-root"}
	all   = []string{"build", "controlplane", "host-root"}
)

// The real parts come in an order that fails early: first what builds them, then what uses them.
var parts = []part{
	{name: "vet", args: []string{"vet", "-tags", "real,vm", "./..."}},
	{name: "lint", args: []string{"tool", "-modfile=tests/lint/go.mod", "golangci-lint", "run"}},
	{name: "tidy", check: tidy},
	{name: "unit", args: test("./...")},
	{name: "newest-go", args: test("./..."), env: []string{"GOTOOLCHAIN=" + newestGo}},
	{name: "contract", args: append([]string{"-C", "tests/contract"}, test("./...")...)},
	{name: "exposition", args: append([]string{"-C", "tests/exposition"}, test("./...")...)},
	{name: "helm", args: append([]string{"-C", "tests/helm"}, test("./...")...)},
	{name: "generate", args: append([]string{"-C", "cluster/api/generate"}, test("./...")...)},
	{name: "race", args: test("-race", "./agent/...", "./cluster/...", "./cmd/...", "./renew",
		"./renew/etcd/...", "./renew/inspect", "./renew/replace", "./renew/signer")},
	// Fresh seeds, and those of before, which are the same for everybody. make simulate walks for longer.
	{name: "simulate-fresh", args: append(test("./tests/simulate"), "-run", "Walks$", "-seed", "0", "-walks", "100")},
	{name: "simulate", args: append(test("./tests/simulate"), "-run", "Walks$", "-seed", "1000000", "-walks", "2500")},
	{
		name: "simulate-identity",
		args: append(test("./tests/simulate/identity"), "-run", "Walks$", "-seed", "70000", "-walks", "60"),
	},
	{name: "model", args: test("-tags", "real", "./tests/model/..."), needs: tools},
	{name: "controlplane", args: test("-tags", "real", "./tests/controlplane/..."), needs: plane},
	{name: "etcdclient", args: append([]string{"-C", "tests/etcdclient"}, test("./...")...), needs: plane},
	{ // race has run the others of the package
		name:  "identity",
		args:  append(test("-race", "-tags", "real", "./agent/identity/..."), "-run", "HoursOff|200Renewals"),
		needs: plane,
	},
	{name: "permissions", args: test("-tags", "real", "./tests/permissions/..."), needs: plane},
	{name: "approver", args: test("-tags", "real", "./tests/approver/..."), needs: all},
	{name: "renewal", args: test("-tags", "real", "./tests/renewal/..."), needs: plane},
	{name: "publisher", args: test("-tags", "real", "./tests/publisher/..."), needs: plane},
	{name: "clusterapi", args: test("-tags", "real", "./tests/clusterapi/..."), needs: plane},
	{name: "image", args: test("-tags", "real", "./tests/image/..."), needs: append([]string{"packages"}, plane...)},
	{name: "kubeadm", args: test("-tags", "real", "./tests/kubeadm/..."), needs: all},
	{name: "readers", args: test("-tags", "real", "./tests/readers/..."), needs: all},
	{name: "packages", args: test("-tags", "real", "./tests/packages/..."), needs: all},
	{name: "enable", args: test("-tags", "real", "./tests/enable/..."), needs: all},
	{name: "host", args: test("-tags", "real", "./tests/host/..."), needs: roots},
	{
		name:  "crash",
		args:  test("-tags", "real", "./tests/crash/...", "./agent/disk/...", "./agent/writer/..."),
		needs: tools,
	},
	{name: "escape", args: test("-tags", "real", "./tests/escape/..."), needs: all},
	{name: "demo", args: test("-tags", "real", "./tests/cmd/demo/..."), needs: all},
	{name: "e2e", args: test("-tags", "real", "./tests/e2e/..."), needs: all},
}

func test(args ...string) []string {
	return append([]string{"test", "-json", "-count=1", "-timeout=40m"}, args...)
}

// outcome is what a part came to.
type outcome struct {
	passed, failed, skipped int
	took                    time.Duration
	err                     error
}

func (o outcome) ok(p part) bool {
	return o.err == nil && o.failed == 0 && o.skipped == 0 && (!p.json || o.passed > 0)
}

func main() {
	fuzz := flag.Duration("fuzz", 0, "instead, run each fuzz target for this long")
	only := flag.String("run", "", "run only the part with this `NAME`")
	flag.Parse()
	run, err := choose(*only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "suite:", err)
		os.Exit(2)
	}
	if *fuzz > 0 {
		run = fuzzParts(*fuzz)
	}
	if err := prepare(run); err != nil {
		fmt.Fprintln(os.Stderr, "suite: building what the tests need:", err)
		os.Exit(1)
	}
	if !runAll(run) {
		os.Exit(1)
	}
}

// choose is the part with that name, or all of them if it is empty.
func choose(name string) ([]part, error) {
	var names []string
	for _, p := range parts {
		if p.name == name {
			return []part{p}, nil
		}
		names = append(names, p.name)
	}
	if name != "" {
		return nil, fmt.Errorf("there is no part %q; there are %s", name, strings.Join(names, ", "))
	}
	return parts, nil
}

// prepare has make build what the parts need, each thing once.
func prepare(run []part) error {
	var targets []string
	for _, p := range run {
		targets = append(targets, p.needs...)
	}
	if len(targets) == 0 {
		return nil
	}
	slices.Sort(targets)
	cmd := exec.Command("make", slices.Compact(targets)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

func runAll(run []part) bool {
	var total outcome
	var table strings.Builder
	good := true
	for _, p := range run {
		p.json = slices.Contains(p.args, "-json")
		fmt.Printf("--- %s\n", p.name)
		o := p.run()
		word := "ok"
		if !o.ok(p) {
			word, good = "FAILED", false
			total.failed += max(1, o.failed)
		}
		total.passed, total.skipped, total.took = total.passed+o.passed, total.skipped+o.skipped, total.took+o.took
		fmt.Fprintf(&table, "%-18s %6.1f min %5d tests  %s\n", p.name, o.took.Minutes(), o.passed+o.failed+o.skipped, word)
	}
	fmt.Printf("\n%s%-18s %6.1f min\n\n", table.String(), "all", total.took.Minutes())
	fmt.Printf("%d passed, %d failed, %d skipped\n", total.passed, total.failed, total.skipped)
	return good
}

// run runs the part; what failed is printed with all it said.
func (p part) run() (o outcome) {
	begin := time.Now()
	defer func() { o.took = time.Since(begin) }()
	if p.check != nil {
		if o.err = p.check(); o.err != nil {
			fmt.Println(o.err)
		}
		return o
	}
	cmd := exec.Command("go", p.args...)
	cmd.Stderr, cmd.Env = os.Stderr, append(os.Environ(), p.env...)
	if !p.json {
		cmd.Stdout = os.Stdout
		o.err = cmd.Run()
		return o
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return outcome{err: err}
	}
	if err := cmd.Start(); err != nil {
		return outcome{err: err}
	}
	said := map[string]*strings.Builder{}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		o.take(lines.Bytes(), said)
	}
	o.err = cmd.Wait()
	return o
}

// event is one line of go test -json; see `go doc test2json`.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
}

func (o *outcome) take(line []byte, said map[string]*strings.Builder) {
	var e event
	if json.Unmarshal(line, &e) != nil {
		fmt.Println(string(line))
		return
	}
	key := e.Package + " " + e.Test
	if said[key] == nil {
		said[key] = &strings.Builder{}
	}
	switch e.Action {
	case "output", "build-output":
		said[key].WriteString(e.Output)
		return
	case "pass":
		if e.Test != "" {
			o.passed++
		} else if e.Elapsed > 1 {
			fmt.Printf("ok    %s %.1fs\n", e.Package, e.Elapsed)
		}
	case "fail":
		if e.Test != "" {
			o.failed++
		}
		fmt.Printf("FAIL  %s\n%s", key, said[key])
	case "skip":
		if e.Test != "" {
			o.skipped++
			fmt.Printf("SKIP  %s\n%s", key, said[key])
		}
	default:
		return
	}
	delete(said, key)
}

// fuzzParts is one part for each fuzz target in the tree.
func fuzzParts(d time.Duration) (out []part) {
	list, err := exec.Command("go", "list", "./...").Output()
	if err != nil {
		fmt.Fprintln(os.Stderr, "suite: listing packages:", err)
		os.Exit(1)
	}
	for pkg := range strings.FieldsSeq(string(list)) {
		names, err := exec.Command("go", "test", "-list", "^Fuzz", pkg).Output()
		if err != nil {
			continue
		}
		for name := range strings.FieldsSeq(string(names)) {
			if strings.HasPrefix(name, "Fuzz") {
				args := []string{"test", "-run", "^$", "-fuzz", "^" + name + "$", "-fuzztime", d.String(), pkg}
				out = append(out, part{name: name, args: args})
			}
		}
	}
	return out
}
