// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/spf13/cobra"
)

func TestTheKindOfAnErrorIsTheExitCode(t *testing.T) {
	broken := errors.New("broken")
	for _, test := range []struct {
		what string
		args []string
		err  error
		code int
		said string
	}{
		{"success", []string{"do"}, nil, 0, ""},
		{"a failure, with hints", []string{"do"}, fmt.Errorf("doing: %w", broken), Failed,
			"prog: error: doing: broken\nprog: hint: mend it\n"},
		{"a misuse", []string{"do"}, Misused(errors.New("--x is missing")), Usage, "prog: error: --x is missing\n"},
		{"a code of its own", []string{"do"}, fmt.Errorf("doing: %w", Exit{5, errors.New("found")}), 5,
			"prog: error: found\n"},
		{"a code without a word", []string{"do"}, Exit{Code: 3}, 3, ""},
		{"an unknown flag", []string{"do", "--none"}, nil, Usage, "prog: error: unknown flag: --none\n"},
		{"an argument where none is taken", []string{"do", "x"}, nil, Usage, "prog: error: unexpected argument \"x\"\n"},
		{"an argument where one is", []string{"take", "x"}, nil, 0, ""},
	} {
		root := &cobra.Command{Use: "prog"}
		run := func(*cobra.Command, []string) error { return test.err }
		root.AddCommand(&cobra.Command{Use: "do", RunE: run},
			&cobra.Command{Use: "take", RunE: run, Args: cobra.ExactArgs(1)})
		hints := func(err error) []string {
			if errors.Is(err, broken) {
				return []string{"mend it"}
			}
			return nil
		}
		var out, complaint bytes.Buffer
		code := Run(t.Context(), "prog", root, hints, test.args, &out, &complaint)
		if code != test.code || complaint.String() != test.said || out.Len() > 0 {
			t.Errorf("%s: code %d, %q, %q; want %d, %q", test.what, code, out.String(), complaint.String(), test.code, test.said)
		}
	}
}
