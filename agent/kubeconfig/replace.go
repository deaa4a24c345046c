// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"bytes"
	"fmt"
	"slices"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// locate finds the text of a scalar. It must stand there as it is, which base64 of one line does:
// without escapes and in one piece.
func (s site) locate(file []byte) (start, end int, err error) {
	n := s.node
	if n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		return 0, 0, fmt.Errorf("line %d: %s are a block of lines", n.Line, s.what)
	}
	start, ok := offset(file, n.Line, n.Column)
	quote := ""
	switch {
	case n.Style&yaml.DoubleQuotedStyle != 0:
		quote = `"`
	case n.Style&yaml.SingleQuotedStyle != 0:
		quote = `'`
	}
	if !ok || !bytes.HasPrefix(file[start:], []byte(quote+n.Value+quote)) {
		return 0, 0, fmt.Errorf("line %d: %s are spread over lines, or written with escapes", n.Line, s.what)
	}
	start += len(quote)
	return start, start + len(n.Value), nil
}

// offset turns a position into one in bytes. The parser counts lines and columns from 1, a column for
// each character, and takes every line break of YAML 1.1 for one.
func offset(file []byte, line, column int) (at int, ok bool) {
	if bytes.HasPrefix(file, []byte("\uFEFF")) {
		at = len("\uFEFF") // the parser does not count it
	}
	for l, c := 1, 1; l < line || c < column; {
		if at >= len(file) || l > line {
			return 0, false
		}
		r, size := utf8.DecodeRune(file[at:])
		at, c = at+size, c+1
		switch {
		case r == '\r' && at < len(file) && file[at] == '\n':
			at, l, c = at+1, l+1, 1
		case r == '\r', r == '\n', r == '\u0085', r == '\u2028', r == '\u2029':
			l, c = l+1, 1
		}
	}
	return at, true
}

// replace puts another value in place and makes sure that nothing else changed its meaning.
func (s site) replace(file []byte, value string) ([]byte, error) {
	out := slices.Concat(file[:s.start], []byte(value), file[s.end:])
	document, err := parse(out)
	if err != nil || !s.same(s.document, document, value) {
		return nil, fmt.Errorf("%s cannot be replaced without a change of something else", s.what)
	}
	return out, nil
}

// same compares two nodes that should differ in the site's value only.
func (s site) same(before, after *yaml.Node, value string) bool {
	want := before.Value
	if before == s.node {
		want = value
	}
	return before.Kind == after.Kind && before.ShortTag() == after.ShortTag() && before.Anchor == after.Anchor &&
		after.Value == want &&
		slices.EqualFunc(before.Content, after.Content, func(b, a *yaml.Node) bool { return s.same(b, a, value) })
}
