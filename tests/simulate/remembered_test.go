// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	_ "embed"
	"strings"
	"testing"
	"testing/synctest"
)

//go:embed testdata/remembered.txt
var remembered string

// TestRememberedWalks: what went wrong once goes right. A step draws from its own seed, so that a walk stays what it is
// as long as its steps are what they are; one whose step was changed proves less, and does no harm.
func TestRememberedWalks(t *testing.T) {
	n := 0
	for line := range strings.Lines(remembered) {
		what, rest, ok := strings.Cut(strings.TrimSpace(line), " | ")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		w, err := ParseWalk(rest)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		n++
		synctest.Test(t, func(*testing.T) {
			if v := run(w, false).Violation; v != nil {
				t.Errorf("%s, as before: %s\n-walk '%s'", what, v, w)
			}
		})
	}
	if n < 10 {
		t.Errorf("only %d walks are remembered", n)
	}
}
