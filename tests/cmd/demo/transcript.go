// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// transcript prints the story: headings, sentences, and commands with what they printed, with an empty
// line wherever one kind follows another.
type transcript struct {
	w        io.Writer
	terminal bool
	chapters int
	last     kind
}

// kind is what was printed last.
type kind int

const (
	nothing kind = iota
	sentence
	quotation
)

func newTranscript(f *os.File) *transcript {
	info, err := f.Stat()
	return &transcript{w: f, terminal: err == nil && info.Mode()&os.ModeCharDevice != 0}
}

// chapter begins a numbered part of the story.
func (t *transcript) chapter(title string) {
	t.chapters++
	line := fmt.Sprintf("%d. %s", t.chapters, title)
	if t.terminal {
		line = "\x1b[1m" + line + "\x1b[0m"
	}
	fmt.Fprintf(t.w, "\n%s\n\n", line)
	t.last = nothing
}

func (t *transcript) say(format string, args ...any) {
	t.turn(sentence)
	fmt.Fprintf(t.w, format+"\n", args...)
}

// quote prints what is not the demo's own word, indented.
func (t *transcript) quote(text string) {
	t.turn(quotation)
	for line := range strings.Lines(strings.TrimRight(text, "\n") + "\n") {
		fmt.Fprint(t.w, strings.TrimRight("    "+line, " \n")+"\n")
	}
}

func (t *transcript) turn(next kind) {
	if t.last != nothing && t.last != next {
		fmt.Fprintln(t.w)
	}
	t.last = next
}

// Write passes on what builders tell about their progress.
func (t *transcript) Write(b []byte) (int, error) { return t.w.Write(b) }

// elapsed is a duration as a reader wants it.
func elapsed(d time.Duration) string {
	switch {
	case d < 100*time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
