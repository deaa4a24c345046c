// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// table is what the run comes to: a line a figure, with its budget where it has one.
type table struct {
	lines []line
	over  bool
}

type line struct{ figure, measured, budget, verdict string }

// note adds a figure without a budget.
func (t *table) note(figure, format string, args ...any) {
	t.lines = append(t.lines, line{figure: figure, measured: fmt.Sprintf(format, args...)})
}

// judge adds a figure that may be as large as its budget.
func (t *table) judge(figure string, got, budget float64, unit string) {
	l := line{figure: figure, measured: amount(got, unit), budget: amount(budget, unit), verdict: "OK"}
	if got > budget {
		l.verdict, t.over = "OVER", true
	}
	t.lines = append(t.lines, l)
}

func amount(v float64, unit string) string {
	if v == float64(int(v)) {
		return strings.TrimSpace(fmt.Sprintf("%d %s", int(v), unit))
	}
	return strings.TrimSpace(fmt.Sprintf("%.2f %s", v, unit))
}

func (t *table) print(w io.Writer) error {
	out := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(out, "FIGURE\tMEASURED\tBUDGET\tVERDICT")
	for _, l := range t.lines {
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\n", l.figure, l.measured, l.budget, l.verdict)
	}
	return out.Flush()
}

// samples are durations of one kind.
type samples []time.Duration

// at is the quantile q by nearest rank, in milliseconds.
func (s samples) at(q float64) float64 {
	sorted := slices.Sorted(slices.Values(s))
	return milliseconds(sorted[min(len(sorted)-1, int(q*float64(len(sorted))))])
}

func (s samples) String() string {
	return fmt.Sprintf("p50 %.2f  p95 %.2f  p99 %.2f ms (n=%d)", s.at(.5), s.at(.95), s.at(.99), len(s))
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// compare adds both contestants and their ratios, judged where they have a budget.
func (t *table) compare(figure string, got map[string]samples, budgets map[string]float64) {
	baseline, agent := got["baseline"], got["agent"]
	t.note(figure+": baseline", "%v", baseline)
	t.note(figure+": agent", "%v", agent)
	for _, q := range []struct {
		name string
		at   float64
	}{{"p50", .5}, {"p95", .95}} {
		name, ratio := "  agent / baseline, "+q.name, agent.at(q.at)/baseline.at(q.at)
		if budget, ok := budgets[q.name]; ok {
			t.judge(name, ratio, budget, "x")
		} else {
			t.note(name, "%s", amount(ratio, "x"))
		}
	}
}
