// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// table is what the run comes to: a line a figure, with its goal where it has one.
type table struct {
	lines  []line
	missed bool
}

type line struct{ figure, measured, goal, verdict string }

// head begins the lines of one size of the fleet.
func (t *table) head(format string, args ...any) {
	t.lines = append(t.lines, line{figure: fmt.Sprintf(format, args...)})
}

// note adds a figure without a goal.
func (t *table) note(figure, format string, args ...any) {
	t.lines = append(t.lines, line{figure: "  " + figure, measured: fmt.Sprintf(format, args...)})
}

// judge adds a figure that is to be at most its goal.
func (t *table) judge(figure string, got, goal float64, unit string) {
	l := line{"  " + figure, amount(got, unit), amount(goal, unit), "OK"}
	if got > goal {
		l.verdict, t.missed = "MISSED", true
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
	fmt.Fprintln(out, "FIGURE\tMEASURED\tGOAL\tVERDICT")
	for _, l := range t.lines {
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\n", l.figure, l.measured, l.goal, l.verdict)
	}
	return out.Flush()
}
