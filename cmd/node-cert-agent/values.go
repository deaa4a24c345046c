// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"
)

// format is how a command prints: a table for people, or JSON for programs.
type format string

const (
	asTable format = "table"
	asJSON  format = "json"
)

func (o *format) flag(cmd *cobra.Command) {
	*o = asTable
	cmd.Flags().VarP(o, "output", "o", "`FORMAT`: table or json")
}

// Set implements pflag.Value, as the methods that follow do.
func (o *format) Set(s string) error {
	*o = format(s)
	if *o != asTable && *o != asJSON {
		return errors.New("want table or json")
	}
	return nil
}

func (o *format) String() string { return string(*o) }

func (o *format) Type() string { return "string" }

// printJSON prints v for programs, and for people who look at what programs get.
func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// kubeconfigFlag is the path of a kubeconfig, absolute whatever is given; empty if nothing is.
func kubeconfigFlag(cmd *cobra.Command, path *string, what string) {
	cmd.Flags().Func("kubeconfig", what, func(s string) (err error) {
		if s != "" {
			*path, err = filepath.Abs(s)
		}
		return err
	})
}
