// SPDX-License-Identifier: Apache-2.0

package tests

import (
	"fmt"
	"html"
	"os"
	"regexp"
	"strings"
	"testing"
)

// picture is a terminal with parts of what docs/demo.md shows, for README.md.
const picture = "../docs/demo.svg"

// The size of the picture, in pixels and in letters; a longer line is cut.
const (
	lineHeight, letterWidth = 18, 8
	columns                 = 140
)

// TestThePictureShowsTheDemo: `make docs` draws it anew.
func TestThePictureShowsTheDemo(t *testing.T) {
	page := texts(t)["docs/demo.md"]
	shown := excerpt(t, page, "4. A rotation", "\n\n[...]") + "\n\n" + excerpt(t, page, "7. Drift", "\n\n8.") + "\n\n" +
		excerpt(t, page, "    $ node-cert-agent status\n", "\n```")
	want := draw(strings.Split(shown, "\n"))
	if *update {
		if err := os.WriteFile(picture, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got, err := os.ReadFile(picture); err != nil || string(got) != want {
		t.Errorf("docs/demo.svg does not show docs/demo.md (%v); make docs", err)
	}
}

// excerpt is what a page has from one text up to another.
func excerpt(t *testing.T, page, from, to string) string {
	t.Helper()
	_, rest, begins := strings.Cut(page, from)
	part, _, ends := strings.Cut(rest, to)
	if !begins || !ends {
		t.Fatalf("docs/demo.md has no part from %q to %q", from, to)
	}
	return from + part
}

var prompt = regexp.MustCompile(`^(?:    )?(\w*\$) (.*)$`)

// draw makes an SVG of some lines: what is typed is bright, and what the demo says between is dim.
func draw(lines []string) string {
	var b strings.Builder
	height := (len(lines) + 2) * lineHeight
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="monospace" font-size="13">`+
		"\n<title>A rotation, a repair and the status, from make demo</title>\n"+
		`<rect width="100%%" height="100%%" rx="8" fill="#1e1e2e"/>`+"\n", (columns+4)*letterWidth, height)
	for i, line := range lines {
		colour := "#9399b2"
		switch {
		case prompt.MatchString(line):
			colour = "#a6e3a1"
		case strings.HasPrefix(line, "    "):
			colour = "#cdd6f4"
		}
		if len(line) > columns {
			line = line[:columns-3] + "..."
		}
		if strings.TrimSpace(line) != "" {
			fmt.Fprintf(&b, `<text x="%d" y="%d" fill="%s" xml:space="preserve">%s</text>`+"\n", 2*letterWidth,
				(i+2)*lineHeight, colour, html.EscapeString(line))
		}
	}
	return b.String() + "</svg>\n"
}
