// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/node-cert-agent/node-cert-agent/agent/printable"
)

// output is a form of what a command prints.
type output string

// The forms: a table for people, and two for programs.
const (
	asTable output = ""
	asJSON  output = "json"
	asYAML  output = "yaml"
)

func (o *output) flag(cmd *cobra.Command) {
	cmd.Flags().VarP(o, "output", "o", "print `json|yaml` for programs")
}

// String implements pflag.Value.
func (o *output) String() string { return string(*o) }

// Type implements pflag.Value.
func (*output) Type() string { return "json|yaml" }

// Set implements pflag.Value.
func (o *output) Set(text string) error {
	if *o = output(text); *o != asJSON && *o != asYAML {
		return fmt.Errorf("%q is neither json nor yaml", text)
	}
	return nil
}

// print prints v, for people by table.
func (o *output) print(out io.Writer, v any, table func(io.Writer)) error {
	switch *o {
	case asTable:
		table(out)
		return nil
	case asYAML:
		text, err := yaml.Marshal(v)
		if err == nil {
			_, err = out.Write(text)
		}
		return err
	}
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// columns prints lines of cells below each other. Whatever a node says is made printable.
func columns(out io.Writer, lines [][]string) {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, cells := range lines {
		for i, c := range cells {
			if i > 0 {
				fmt.Fprint(t, "\t")
			}
			fmt.Fprint(t, dash(printable.Text(c)))
		}
		fmt.Fprintln(t)
	}
	_ = t.Flush() // whoever reads may have gone
}
