// SPDX-License-Identifier: Apache-2.0

package printable

import (
	"strings"
	"testing"
)

func TestTextFromOutsideIsFitForATerminal(t *testing.T) {
	for in, want := range map[string]string{
		`plain "text"`:           `plain "text"`,
		"\x1b[2J\nx":             `\x1b[2J\nx`,
		"käse":                   `k\u00e4se`,
		strings.Repeat("a", 300): strings.Repeat("a", 256),
	} {
		if got := Text(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
	if got := Text(strings.Repeat("\n", 200)); len(got) != 256 || !strings.HasSuffix(got, "...") {
		t.Errorf("what grows is cut to %d bytes: %q", len(got), got)
	}
}
