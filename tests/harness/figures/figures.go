// SPDX-License-Identifier: Apache-2.0

// Package figures is what a benchmark comes to: a table with a line a figure, beside its budget where it has one, and
// the durations that figures are made of.
//
// It promises that a figure which is over its budget is said and known, and measures nothing itself.
package figures

import (
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
)

// Table holds the lines of a run. The zero value is an empty one.
type Table struct {
	// Over says that a budget was exceeded.
	Over bool

	lines  []line
	indent string
}

type line struct{ figure, measured, budget, verdict string }

// Head begins a group of lines.
func (t *Table) Head(format string, args ...any) {
	t.lines, t.indent = append(t.lines, line{figure: fmt.Sprintf(format, args...)}), "  "
}

// Note adds a figure without a budget.
func (t *Table) Note(figure, format string, args ...any) {
	t.lines = append(t.lines, line{figure: t.indent + figure, measured: fmt.Sprintf(format, args...)})
}

// Judge adds a figure that may be as large as its budget.
func (t *Table) Judge(figure string, got, budget float64, unit string) {
	l := line{t.indent + figure, amount(got, unit), amount(budget, unit), "OK"}
	if got > budget {
		l.verdict, t.Over = "OVER", true
	}
	t.lines = append(t.lines, l)
}

// Compare adds the figures of "baseline" and "agent", and their ratios, judged where budgets has "p50" or "p95".
func (t *Table) Compare(figure string, got map[string]Samples, budgets map[string]float64) {
	baseline, agent := got["baseline"], got["agent"]
	t.Note(figure+": baseline", "%v", baseline)
	t.Note(figure+": agent", "%v", agent)
	for _, q := range []struct {
		name string
		at   float64
	}{{"p50", .5}, {"p95", .95}} {
		name, ratio := "  agent / baseline, "+q.name, agent.Seconds(q.at)/baseline.Seconds(q.at)
		if budget, ok := budgets[q.name]; ok {
			t.Judge(name, ratio, budget, "x")
		} else {
			t.Note(name, "%s", amount(ratio, "x"))
		}
	}
}

func amount(v float64, unit string) string {
	if v == float64(int(v)) {
		return strings.TrimSpace(fmt.Sprintf("%d %s", int(v), unit))
	}
	return strings.TrimSpace(fmt.Sprintf("%.2f %s", v, unit))
}

// Print writes the table.
func (t *Table) Print(w io.Writer) error {
	out := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(out, "FIGURE\tMEASURED\tBUDGET\tVERDICT")
	for _, l := range t.lines {
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\n", l.figure, l.measured, l.budget, l.verdict)
	}
	return out.Flush()
}

// Load is the load average of the machine, which says what else it does.
func Load() string {
	data, err := os.ReadFile("/proc/loadavg")
	if words := strings.Fields(string(data)); err == nil && len(words) > 2 {
		return strings.Join(words[:3], " ")
	}
	return "unknown"
}
