// SPDX-License-Identifier: Apache-2.0

// Package printable makes text from outside fit for people. What the cluster or the network says may hold control
// characters that act on a terminal, or be as long as it likes; nothing of it is shown or recorded before it was here.
// It is pure, and knows nothing of what the text means.
package printable

import (
	"strconv"
	"strings"
)

// longest is how many bytes are shown.
const longest = 256

// Text makes a string from the cluster or the network fit for records, tables and terminals:
// control and non-ASCII characters are escaped as in Go, and it is cut at 256 bytes.
func Text(s string) string {
	s = s[:min(len(s), longest)]
	q := strconv.QuoteToASCII(s)
	q = strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
	if len(q) > longest {
		q = q[:longest-3] + "..."
	}
	return q
}

// Count is a number of things as a person says it.
func Count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return strconv.Itoa(n) + " " + thing + "s"
}
