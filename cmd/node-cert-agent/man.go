// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// manCommand is for the build of the package: the manual page has the same words as --help, and
// cobra's own generator would bring a Markdown parser along.
func manCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "man",
		Short:  "Print the commands as sections of the manual page",
		Hidden: true,
		RunE: func(c *cobra.Command, _ []string) error {
			for _, sub := range c.Root().Commands() {
				if !sub.Hidden && sub.Name() != "help" {
					section(c.OutOrStdout(), sub)
				}
			}
			fmt.Fprintln(c.OutOrStdout(), ".SS Flags of every command")
			flagList(c.OutOrStdout(), c.Root().PersistentFlags())
			return nil
		},
	}
}

// section is one command in man(7) macros.
func section(w io.Writer, c *cobra.Command) {
	fmt.Fprintf(w, ".SS %s\n.nf\n%s\n.fi\n", roff(c.Name()), roff(c.UseLine()))
	text := c.Long
	if c.HasSubCommands() { // the shells of completion, whose words are cobra's
		var names []string
		for _, sub := range c.Commands() {
			names = append(names, sub.Name())
		}
		text = c.Short + ": " + strings.Join(names, ", ") + "."
	}
	for paragraph := range strings.SplitSeq(cmp.Or(text, c.Short+"."), "\n\n") {
		fmt.Fprintf(w, ".PP\n%s\n", roff(paragraph))
	}
	flagList(w, c.LocalNonPersistentFlags())
}

func flagList(w io.Writer, flags *pflag.FlagSet) {
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		variable, words := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		fmt.Fprintf(w, ".TP\n\\fB%s\\fR \\fI%s\\fR\n%s\n", roff(name), roff(variable), roff(words))
	})
}

// roff escapes what groff(7) would take for a request or a special character.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}
