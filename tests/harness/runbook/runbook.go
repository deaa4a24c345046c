// SPDX-License-Identifier: Apache-2.0

// Package runbook reads the blocks of a page, so that a test runs what the page says and nothing else.
//
// A block is what stands between two lines of three backquotes at the beginning of a line, whatever language they
// name. It is found by the heading that it is below, of whatever level, and by its place there.
package runbook

import (
	"cmp"
	"os"
	"regexp"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/must"
)

var parts = regexp.MustCompile("(?ms)^##+ ([^\n]*)$|^```[a-z]*\n(.*?)^```$")

// Page is one that was read.
type Page struct {
	t      testing.TB
	file   string
	blocks map[string][]string // by heading
}

// Read reads a page.
func Read(t testing.TB, file string) Page {
	t.Helper()
	text, err := os.ReadFile(file)
	must.Do(t, err)
	p := Page{t, file, make(map[string][]string)}
	heading := ""
	for _, m := range parts.FindAllStringSubmatch(string(text), -1) {
		if heading = cmp.Or(m[1], heading); m[2] != "" {
			p.blocks[heading] = append(p.blocks[heading], m[2])
		}
	}
	return p
}

// Block is one below a heading, from 0. The test ends if it is not there.
func (p Page) Block(heading string, block int) string {
	p.t.Helper()
	if block >= len(p.blocks[heading]) {
		p.t.Fatalf("%s has %d blocks below %q", p.file, len(p.blocks[heading]), heading)
	}
	return p.blocks[heading][block]
}
