// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/node-cert-agent/node-cert-agent/agent/printable"
	"github.com/node-cert-agent/node-cert-agent/cluster/fleet"
)

func statusCommand(c *connection) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show how each node stands",
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := c.config()
			if err != nil {
				return err
			}
			f, err := watch(cmd.Context(), config)
			if err != nil {
				return err
			}
			all, _ := f.Nodes()
			printNodes(cmd.OutOrStdout(), all, time.Now())
			return nil
		},
	}
}

// printNodes shows one node a line, and then in one line what an operator looks for first.
func printNodes(out io.Writer, all []fleet.Node, now time.Time) {
	slices.SortFunc(all, func(a, b fleet.Node) int { return cmp.Compare(a.Name, b.Name) })
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NODE\tSTATE\tVERSION\tHELD\tPENDING\tBREAKER\tREPORTED")
	following, silent, broken := 0, 0, 0
	for _, n := range all {
		r := n.Report
		if r == nil {
			silent++
			fmt.Fprintf(t, "%s\tnever reported\t-\t-\t-\t-\t-\n", printable.Text(n.Name))
			continue
		}
		if r.State == "following" {
			following++
		}
		if r.Breaker != "" {
			broken++
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", printable.Text(n.Name), printable.Text(r.State),
			dash(printable.Text(r.Synced.ResourceVersion)), strconv.Itoa(r.Held), strconv.Itoa(r.Pending),
			dash(printable.Text(r.Breaker)), age(r.At, now))
	}
	_ = t.Flush() // whoever reads may have gone
	fmt.Fprintf(out, "\n%d nodes: %d follow, %d never reported, %d with a breaker open\n", len(all), following, silent,
		broken)
}

// printMissing shows who lacks what, and since when nothing was heard of it.
func printMissing(out io.Writer, a fleet.Answer) {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NODE\tLAST HEARD\tREASON")
	for _, m := range a.Missing {
		fmt.Fprintf(t, "%s\t%s\t%s\n", printable.Text(m.Node), age(m.Since, time.Now()), m.Reason)
	}
	_ = t.Flush() // whoever reads may have gone
}

func age(at, now time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return duration.HumanDuration(now.Sub(at))
}

func dash(s string) string { return cmp.Or(s, "-") }
