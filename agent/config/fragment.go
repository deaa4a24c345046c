// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// inputs are values by key path, such as "files.rootCAData.mode". A list is one value.
type inputs map[string]input

// input is one value that a file sets, with the place where it stands.
type input struct {
	value any // of the type that the key's leaf yields
	file  string
	line  int
}

func (i input) problem(key, format string, args ...any) error {
	return &Error{File: i.file, Line: i.line, Key: key, Problem: fmt.Sprintf(format, args...)}
}

// where is the input's place in the form of Error.
func (i input) where() string { return fmt.Sprintf("%s:%d", i.file, i.line) }

// rule says what may stand at a key: a branch, a named, a leaf, or nothing (absent).
type rule interface {
	apply(f *fragment, key string, n *yaml.Node)
}

// branch is a mapping with a fixed set of keys.
type branch map[string]rule

// named is a mapping whose keys are names that check accepts, all with the same rule.
type named struct {
	check func(name string) error
	each  rule
}

// mentioned is the value of a name itself, so that one with nothing below it is not overlooked.
type mentioned struct{}

// leaf is a single value.
type leaf func(n *yaml.Node) (any, error)

// fragment is one file while it is parsed.
type fragment struct {
	file     string
	in       inputs
	problems []error
}

// parseAll parses each source into a layer.
func parseAll(sources []source, rules rule) (layers []inputs, problems []error) {
	for _, s := range sources {
		f := &fragment{file: s.path, in: inputs{}}
		f.parse(s.text, rules)
		layers = append(layers, f.in)
		problems = append(problems, f.problems...)
	}
	return layers, problems
}

func (f *fragment) parse(text []byte, rules rule) {
	var doc, next yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(text))
	err := dec.Decode(&doc)
	if errors.Is(err, io.EOF) {
		return // nothing but space and comments: a mask
	}
	if err == nil {
		if err = dec.Decode(&next); err == nil {
			f.fail(&next, "", "a second document: one file holds one")
		}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		f.problems = append(f.problems, syntaxError(f.file, err))
		return
	}
	rules.apply(f, "", doc.Content[0])
	if _, ok := f.in["apiVersion"]; !ok && len(f.problems) == 0 {
		f.fail(doc.Content[0], "apiVersion", "missing; want %s", apiVersion)
	}
}

// syntaxError takes the line out of the parser's message, which is the only place that has it; the
// parser counts some of them from 0.
func syntaxError(file string, err error) error {
	e := &Error{File: file}
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	where := "not YAML: "
	if _, scanErr := fmt.Sscanf(text, "line %d:", &e.Line); scanErr == nil {
		_, text, _ = strings.Cut(text, ": ")
		where = "not YAML here or just below: "
	}
	e.Problem = where + text
	return e
}

func (f *fragment) fail(n *yaml.Node, key, format string, args ...any) {
	f.problems = append(f.problems, input{file: f.file, line: n.Line}.problem(key, format, args...))
}

// plain refuses the parts of YAML that would let one place of a file speak for another, or make a
// value something else than it looks.
func (f *fragment) plain(key string, n *yaml.Node) bool {
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		f.fail(n, key, "anchors and aliases are not accepted")
	case n.Style&yaml.TaggedStyle != 0:
		f.fail(n, key, "tags are not accepted")
	default:
		return true
	}
	return false
}

// pairs calls each for every key of a mapping that may stand there.
func (f *fragment) pairs(key string, n *yaml.Node, each func(key, name string, k, v *yaml.Node)) {
	if !f.plain(key, n) {
		return
	}
	if n.Kind != yaml.MappingNode {
		f.fail(n, key, "want a mapping of keys, have %s", describe(n))
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if k.Kind != yaml.ScalarNode || !f.plain(key, k) {
			f.fail(k, key, "a key must be a plain word")
			continue
		}
		below := join(key, k.Value)
		if line, ok := seen[k.Value]; ok {
			f.fail(k, below, "given twice; first in line %d", line)
			continue
		}
		seen[k.Value] = k.Line
		each(below, k.Value, k, v)
	}
}

func (b branch) apply(f *fragment, key string, n *yaml.Node) {
	f.pairs(key, n, func(below, name string, k, v *yaml.Node) {
		r, ok := b[name]
		if !ok {
			f.fail(k, below, "unknown key; want one of %s", strings.Join(slices.Sorted(maps.Keys(b)), ", "))
			return
		}
		r.apply(f, below, v)
	})
}

func (m named) apply(f *fragment, key string, n *yaml.Node) {
	f.pairs(key, n, func(below, name string, k, v *yaml.Node) {
		if err := m.check(name); err != nil {
			f.fail(k, below, "%v", err)
			return
		}
		f.in[below] = input{mentioned{}, f.file, k.Line}
		m.each.apply(f, below, v)
	})
}

func (l leaf) apply(f *fragment, key string, n *yaml.Node) {
	if !f.plain(key, n) {
		return
	}
	value, err := l(n)
	if err != nil {
		f.fail(n, key, "%v", err)
		return
	}
	f.in[key] = input{value, f.file, n.Line}
}

// join appends a name to a key path. Names that are not plain words are quoted, and cut, so that a
// problem stays one readable line.
func join(key, name string) string {
	for _, r := range name {
		if r <= ' ' || r > '~' || r == '"' {
			name = strconv.QuoteToASCII(name)
			break
		}
	}
	name = cmp.Or(name, `""`)
	if len(name) > 256 {
		name = name[:253] + "..."
	}
	if key == "" {
		return name
	}
	return key + "." + name
}

// describe names what stands at n, for problems.
func describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.ShortTag() == "!!null":
		return "nothing"
	case n.ShortTag() == "!!bool":
		return "true or false"
	case n.ShortTag() == "!!str":
		return "a string"
	}
	return "a number or date"
}
