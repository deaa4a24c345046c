// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
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
	"github.com/node-cert-agent/node-cert-agent/agent/printable"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/agent/source"
	"github.com/node-cert-agent/node-cert-agent/cmd/process"
)

var errNoStatus = errors.New("the agent has published no status on this host")

func statusCommand(f *flags) *cobra.Command {
	var output format
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what the running agent last published",
		RunE: func(c *cobra.Command, _ []string) error {
			return showStatus(f, output, c.OutOrStdout())
		},
	}
	output.flag(cmd)
	return cmd
}

func showStatus(f *flags, output format, w io.Writer) error {
	tree, err := disk.Open(f.root)
	if err != nil {
		return err
	}
	data, err := readStatus(tree)
	if err != nil {
		return err
	}
	s, err := report.Parse(data)
	if err != nil {
		return err
	}
	if output == asJSON {
		_, err = w.Write(report.PlainJSON(data))
	} else {
		err = printStatus(w, s, time.Now())
	}
	if err == nil && s.State == source.NoIdentity {
		err = process.Exit{Code: exitNoID}
	}
	return err
}

// currentStatus is what the service last published.
func currentStatus(tree *disk.Tree) (report.Status, error) {
	data, err := readStatus(tree)
	if err != nil {
		return report.Status{}, err
	}
	return report.Parse(data)
}

// readStatus follows no links, since the directory belongs to the unprivileged process.
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

// printStatus is the table for people, of a status that report.Parse made printable.
func printStatus(w io.Writer, s report.Status, now time.Time) error {
	var table bytes.Buffer
	t := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(t, "%s:\t%s\n", name, value)
		}
	}
	line("State", join(s.State, s.Reason)+since(s.Since, now))
	if c := s.ConfigMap; c != nil {
		line("ConfigMap", join(c.State, c.Reason))
	}
	line("Node", s.Node)
	if i := s.Identity; i != nil {
		line("Identity", join(i.State, i.Reason))
		if i.Serial != "" {
			line("Certificate", fmt.Sprintf("%s until %s, renewed at %s",
				i.Serial, i.Expires.Format(time.RFC3339), i.Renew.Format(time.RFC3339)))
		}
	}
	line("ControllerConfig", printable.Text(s.ControllerConfig.ResourceVersion))
	if !s.Synced.IsZero() {
		line("Synced", s.Synced.Format(time.RFC3339)+since(s.Synced, now))
	}
	line("Error", s.Error)
	line("Paused", s.Paused)
	if o := s.Override; o != nil {
		line("Override", fmt.Sprintf("%s, %s: %s", o.Source, stamp(o.At, time.RFC3339), o.State))
	}
	if r := s.Renewal; r != nil && !r.Unrenewed.IsZero() {
		line("Renewal", "nobody renews what ends at "+r.Unrenewed.Format(time.RFC3339)+": node-cert-agent renew")
	}
	line("Agent", s.Version)
	printFiles(t, s.Files)
	if len(s.Units) > 0 {
		fmt.Fprintf(t, "\nUNIT\tVERB\tSTATE\tWHY\n")
		for _, u := range s.Units {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", u.Name, u.Verb, u.State, u.Reason)
		}
	}
	printExceptions(t, "REFUSED", s.Refused)
	printExceptions(t, "RETAINED", s.Retained)
	printWaiting(t, s)
	if err := t.Flush(); err != nil {
		return err
	}
	return trim(w, table.String())
}

// trim prints a table without the blanks that empty last cells leave.
func trim(w io.Writer, table string) error {
	for line := range strings.Lines(table) {
		if _, err := io.WriteString(w, strings.TrimRight(line, " \n")+"\n"); err != nil {
			return err
		}
	}
	return nil
}

// printWaiting are the files and certificates with which there is nothing to do for now.
func printWaiting(t io.Writer, s report.Status) {
	if len(s.Conflicts) > 0 {
		fmt.Fprintf(t, "\nCONFLICT\tREPAIRED\n")
		for _, c := range s.Conflicts {
			fmt.Fprintf(t, "%s\t%d times in 10 minutes\n", c.Path, c.Repairs)
		}
	}
	if len(s.Held) > 0 {
		fmt.Fprintf(t, "\nHELD\tCERTIFICATE\tUNTIL\tWHY\n")
		for _, h := range s.Held {
			fmt.Fprintf(t, "%s\t%.16s %s\t%s\t%s\n",
				printable.Text(h.Key.String()), h.Fingerprint, h.Subject, stamp(h.Until, time.RFC3339), h.Reason)
		}
	}
}

// printFiles lists the managed files, and below them who was asked whether they use them.
func printFiles(w io.Writer, files []report.File) {
	if len(files) > 0 {
		fmt.Fprintf(w, "\nFILE\tFIELD\tSTATE\tCERTIFICATES\tFIRST EXPIRY\tWARNINGS\n")
	}
	for _, f := range files {
		state := strings.TrimSuffix(string(f.State)+", "+string(f.Use()), ", ")
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\n",
			f.Path, f.Field, state, f.Certificates, stamp(f.Expires, time.DateOnly), strings.Join(f.Warnings, ", "))
	}
	title := "\nCONSUMER\tOF\tSTATE\tWHY\n"
	for _, f := range files {
		for _, c := range f.Consumers {
			fmt.Fprintf(w, "%s%s %s\t%s\t%s\t%s\n", title, c.Kind, c.Address, f.Path, c.State, c.Reason)
			title = ""
		}
	}
}

// stamp is a time, or nothing for none.
func stamp(t time.Time, layout string) string {
	if t.IsZero() {
		return ""
	}
	return t.Format(layout)
}

func printExceptions(w io.Writer, title string, list []plan.Refusal) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s\tWHY\n", title)
	for _, r := range list {
		fmt.Fprintf(w, "%s\t%s\n", printable.Text(r.Key.String()), printable.Text(r.Reason))
	}
}

// join is a state with its reason.
func join[S ~string](state S, reason string) string {
	if reason == "" {
		return string(state)
	}
	return string(state) + ": " + reason
}

func since(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return fmt.Sprintf(" (%s ago)", now.Sub(t).Round(time.Second))
}
