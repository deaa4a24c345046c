// SPDX-License-Identifier: Apache-2.0

package readers

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/objects"
)

// File is what somebody may publish.
type File struct {
	Name string
	Data []byte
}

// Files are the bundles of the corpus, and two certificates with something changed in each of the
// places that matter to a reader of lines.
func Files() (all []File) {
	for i, data := range objects.Contents() {
		all = append(all, File{fmt.Sprintf("corpus %d", i+1), data})
	}
	pair := string(objects.CA("a")) + string(objects.CA("b"))
	lines := strings.SplitAfter(pair, "\n")
	first, _, _ := strings.Cut(pair, "-----END ")
	last := strings.Count(first, "\n")
	for _, place := range []struct {
		name string
		line int
	}{{"begin", 0}, {"first line", 1}, {"second line", 2}, {"last line", last - 1}, {"end", last},
		{"next begin", last + 1}} {
		for _, c := range changes {
			changed := append([]string{}, lines...)
			changed[place.line] = c.change(strings.TrimSuffix(lines[place.line], "\n"))
			all = append(all, File{place.name + " with " + c.name, []byte(strings.Join(changed, ""))})
		}
	}
	for _, width := range []int{1, 3, 48, 63, 65, 76, 77, 80, 252, 253, 254, 255, 256, 5000} {
		all = append(all, File{fmt.Sprintf("lines of %d", width), wrapped([]byte(pair), width)})
	}
	return all
}

// changes are made to one line, given without its end.
var changes = []struct {
	name   string
	change func(string) string
}{
	{"a space after it", func(s string) string { return s + " \n" }},
	{"a tab after it", func(s string) string { return s + "\t\n" }},
	{"300 spaces after it", func(s string) string { return s + strings.Repeat(" ", 300) + "\n" }},
	{"a space before it", func(s string) string { return " " + s + "\n" }},
	{"300 spaces before it", func(s string) string { return strings.Repeat(" ", 300) + s + "\n" }},
	{"a space in it", func(s string) string { return s[:20] + " " + s[20:] + "\n" }},
	{"CRLF", func(s string) string { return s + "\r\n" }},
	{"CR CRLF", func(s string) string { return s + "\r\r\n" }},
	{"CR alone", func(s string) string { return s + "\r" }},
	{"no end", func(s string) string { return s }},
	{"a form feed", func(s string) string { return s + "\f\n" }},
	{"a vertical tab", func(s string) string { return s + "\v\n" }},
	{"a NUL after it", func(s string) string { return s + "\x00\n" }},
	{"a NUL on a line", func(s string) string { return "\x00\n" + s + "\n" }},
	{"a DEL after it", func(s string) string { return s + "\x7f\n" }},
	{"a blank line before it", func(s string) string { return "\n" + s + "\n" }},
	{"white space on the line before it", func(s string) string { return " \t\n" + s + "\n" }},
	{"a text line before it", func(s string) string { return "subject=CN = x\n" + s + "\n" }},
	{"a line of letters before it", func(s string) string { return "text\n" + s + "\n" }},
	{"a header before it", func(s string) string { return "A: b\n" + s + "\n" }},
	{"a header and a blank line before it", func(s string) string { return "A: b\n\n" + s + "\n" }},
	{"an encryption header before it", func(s string) string {
		return "Proc-Type: 4,ENCRYPTED\nDEK-Info: X\n\n" + s + "\n"
	}},
	{"dashes before it", func(s string) string { return "-----\n" + s + "\n" }},
	{"a rule before it", func(s string) string { return "# " + strings.Repeat("-", 70) + "\n" + s + "\n" }},
	{"a byte order mark before it", func(s string) string { return "\ufeff" + s + "\n" }},
	{"254 letters before it", func(s string) string { return strings.Repeat("x", 254) + s + "\n" }},
	{"a long comment before it", func(s string) string { return "#" + strings.Repeat("x", 1000) + "\n" + s + "\n" }},
	{"an umlaut before it", func(s string) string { return "größer\n" + s + "\n" }},
	{"a zero before it", func(s string) string { return "0 text that begins like DER\n" + s + "\n" }},
	{"p11-kit's mark before it", func(s string) string { return "[p11-kit-object-v1]\n" + s + "\n" }},
	{"another beginning before it", func(s string) string { return "-----BEGIN CERTIFICATE-----\n" + s + "\n" }},
	{"another end before it", func(s string) string { return "-----END CERTIFICATE-----\n" + s + "\n" }},
	{"itself twice", func(s string) string { return s + "\n" + s + "\n" }},
	{"nothing in its place", func(string) string { return "" }},
	{"one more dash", func(s string) string { return s + "-\n" }},
	{"one dash less", func(s string) string { return strings.TrimSuffix(s, "-") + "\n" }},
	{"padding after it", func(s string) string { return s + "=\n" }},
	{"another label", func(s string) string {
		return strings.Replace(s, " CERTIFICATE-", " TRUSTED CERTIFICATE-", 1) + "\n"
	}},
	{"a space in the label", func(s string) string {
		return strings.Replace(s, " CERTIFICATE-", " CERTIFICATE -", 1) + "\n"
	}},
	{"small letters", func(s string) string { return strings.ToLower(s) + "\n" }},
}

// wrapped has the same certificates in lines of another width.
func wrapped(pem []byte, width int) []byte {
	var out bytes.Buffer
	for _, der := range blocks(pem) {
		text := base64.StdEncoding.EncodeToString(der)
		out.WriteString("-----BEGIN CERTIFICATE-----\n")
		for len(text) > width {
			out.WriteString(text[:width] + "\n")
			text = text[width:]
		}
		out.WriteString(text + "\n-----END CERTIFICATE-----\n")
	}
	return out.Bytes()
}
