// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"time"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/figures"
)

// planned is a result of go test -bench with -benchmem.
var planned = regexp.MustCompile(`(?m)^BenchmarkUnchanged\S*\s+\d+\s+([0-9.]+) ns/op\s+(\d+) B/op\s+(\d+) allocs/op$`)

// planning is what a reconcile costs in decisions when nothing has happened, on a host with 12 CAs and 20
// registries: the benchmark of package plan, which makes no use of the environment.
func planning(ctx context.Context, _ *env, _ plan, t *figures.Table) error {
	out, err := exec.CommandContext(ctx, "go", "test", "-run=^$", "-bench=^BenchmarkUnchanged$", "-benchtime=2s",
		"./agent/plan").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%v\n%s", err, out)
	}
	m := planned.FindSubmatch(out)
	if m == nil {
		return fmt.Errorf("no figure in\n%s", out)
	}
	ns, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		return err
	}
	t.Judge("planning of an unchanged object, 20 registries, 12 CAs", figures.Milliseconds(time.Duration(ns)), 1, "ms")
	t.Note("  allocations", "%s of %s bytes", m[3], m[2])
	return nil
}
