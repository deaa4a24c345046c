// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/node-cert-agent/node-cert-agent/agent/disk"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
)

var errNoStatus = errors.New("the agent has published no status on this host")

func statusCommand(f *flags) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what the running agent last published",
		Args:  noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if output != "table" && output != "json" {
				return usage(fmt.Errorf("output %q: want table or json", output))
			}
			return showStatus(f, output, c.OutOrStdout())
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "table", "`FORMAT`: table or json")
	return cmd
}

func showStatus(f *flags, output string, w io.Writer) error {
	tree, err := disk.Open(f.root)
	if err != nil {
		return err
	}
	data, err := readStatus(tree)
	if err != nil {
		return err
	}
	var s report.Status
	if err := json.Unmarshal(data, &s); err != nil {
		return fmt.Errorf("the status is not what an agent of this version writes: %v", err)
	}
	if output == "json" {
		_, err = w.Write(data)
	} else {
		err = printStatus(w, s, time.Now())
	}
	if err == nil && s.State == stateNoIdentity {
		err = exit{code: exitNoID}
	}
	return err
}

// readStatus follows no links, since the directory belongs to the unprivileged half.
func readStatus(tree *disk.Tree) ([]byte, error) {
	dir, err := tree.Directory(runtimeDir)
	var data []byte
	if err == nil {
		data, err = dir.ReadFile(report.StatusFile)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNoStatus
	}
	if err != nil {
		return nil, fmt.Errorf("reading the status: %w", err)
	}
	return data, nil
}

// printStatus is the table for people. Everything in it was made printable where it came in.
func printStatus(w io.Writer, s report.Status, now time.Time) error {
	var table bytes.Buffer
	t := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(t, "%s:\t%s\n", name, value)
		}
	}
	line("State", strings.TrimSuffix(s.State+": "+s.Reason, ": ")+since(s.Since, now))
	line("Node", s.Node)
	if i := s.Identity; i != nil {
		line("Identity", join(i.State, i.Reason))
		if i.Serial != "" {
			line("Certificate", fmt.Sprintf("%s until %s, renewed at %s", i.Serial, i.Expires.Format(time.RFC3339), i.Renew.Format(time.RFC3339)))
		}
	}
	line("Object", plan.Printable(s.Object.ResourceVersion))
	if !s.Synced.IsZero() {
		line("Synced", s.Synced.Format(time.RFC3339)+since(s.Synced, now))
	}
	line("Trouble", s.Trouble)
	line("Agent", s.Version)
	if len(s.Files) > 0 {
		fmt.Fprintf(t, "\nFILE\tROW\tSTATE\tCERTIFICATES\tFIRST EXPIRY\tWARNINGS\n")
		for _, f := range s.Files {
			fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%s\n", f.Path, f.Row, f.State, f.Certificates, f.Expires.Format("2006-01-02"), strings.Join(f.Warnings, ", "))
		}
	}
	if len(s.Units) > 0 {
		fmt.Fprintf(t, "\nUNIT\tVERB\tSTATE\tWHY\n")
		for _, u := range s.Units {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", u.Name, u.Verb, u.State, u.Reason)
		}
	}
	exceptions(t, "REFUSED", s.Refused)
	exceptions(t, "KEPT", s.Kept)
	if err := t.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(table.String()) {
		// An empty last cell leaves blanks.
		if _, err := io.WriteString(w, strings.TrimRight(line, " \n")+"\n"); err != nil {
			return err
		}
	}
	return nil
}

func exceptions(w io.Writer, title string, list []plan.Refusal) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s\tWHY\n", title)
	for _, r := range list {
		fmt.Fprintf(w, "%s\t%s\n", plan.Printable(r.Key.String()), plan.Printable(r.Reason))
	}
}

func since(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return fmt.Sprintf(" (%s ago)", now.Sub(t).Round(time.Second))
}
