// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"encoding/base64"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// refused names the fields that ask for more than TLS with stated credentials.
var refused = map[string]string{
	"exec":                     "running a program is not accepted; " + acceptedCredentials,
	"auth-provider":            "plug-ins are not accepted; " + acceptedCredentials,
	"username":                 "basic authentication is not accepted; " + acceptedCredentials,
	"password":                 "basic authentication is not accepted; " + acceptedCredentials,
	"as":                       "impersonation is not accepted; " + acceptedCredentials,
	"as-uid":                   "impersonation is not accepted; " + acceptedCredentials,
	"as-groups":                "impersonation is not accepted; " + acceptedCredentials,
	"as-user-extra":            "impersonation is not accepted; " + acceptedCredentials,
	"insecure-skip-tls-verify": "a server that is not verified is not accepted; " + acceptedTrust,
}

// section is one mapping of the file, after its names have been checked.
type section struct {
	path   string // as in users[].user
	line   int
	dir    string // of the kubeconfig
	values map[string]*yaml.Node
}

// open parses the file without giving anything in it a meaning.
func open(data []byte, dir string) (section, error) {
	if len(data) > maxFile {
		return section{}, fmt.Errorf("larger than %d bytes", maxFile)
	}
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil {
		// The parser quotes what it stumbles over.
		return section{}, errors.New(strings.TrimSuffix("not YAML, "+inLine.FindString(err.Error()), ", "))
	}
	if document.Kind != yaml.DocumentNode {
		return section{}, errors.New("empty")
	}
	s := section{path: "", dir: dir}
	return s.child("", document.Content[0],
		"apiVersion", "kind", "preferences", "clusters", "users", "contexts", "current-context")
}

var inLine = regexp.MustCompile(`line \d+`)

// child reads a mapping that may have these names, and refuses the fields that are not accepted. The
// free-form extensions are skipped everywhere.
func (s section) child(name string, n *yaml.Node, names ...string) (section, error) {
	c := section{path: s.path + name, line: n.Line, dir: s.dir, values: make(map[string]*yaml.Node)}
	if n.Kind != yaml.MappingNode {
		return c, c.fault(n, "", "not a mapping")
	}
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch {
		case key.Value == "extensions":
			continue
		case !slices.Contains(names, key.Value):
			return c, c.fault(key, "", "an unknown field") // its name may be a misplaced secret
		case c.values[key.Value] != nil:
			return c, c.fault(key, key.Value, "given twice")
		case value.Kind == yaml.AliasNode:
			return c, c.fault(value, key.Value, "aliases are not accepted")
		case value.Tag == "!!null":
			continue
		}
		why, bad := refused[key.Value]
		if bad && !harmless(key.Value, value) {
			return c, c.fault(key, key.Value, why)
		}
		c.values[key.Value] = value
	}
	return c, nil
}

// harmless recognises the one refused field that kubectl writes with a value that refuses nothing.
func harmless(name string, value *yaml.Node) bool {
	var b bool
	return name == "insecure-skip-tls-verify" && value.Decode(&b) == nil && !b
}

// named reads a list of {name, <inner>: {...}}.
func (s section) named(list, inner string, names ...string) (map[string]section, error) {
	out := make(map[string]section)
	n := s.values[list]
	if n == nil {
		return out, nil
	}
	if n.Kind != yaml.SequenceNode {
		return nil, s.fault(n, list, "not a list")
	}
	for _, item := range n.Content {
		outer, err := s.child(list+"[]", item, "name", inner)
		if err != nil {
			return nil, err
		}
		name, err := outer.text("name")
		if err != nil {
			return nil, err
		}
		body := outer.values[inner]
		if body == nil {
			continue
		}
		if _, twice := out[name]; twice {
			return nil, s.fault(item, list, "two entries of one name")
		}
		if out[name], err = outer.child("."+inner, body, names...); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// chosen follows a reference by name.
func (s section) chosen(among map[string]section, field string) (section, error) {
	name, err := s.text(field)
	if err != nil {
		return section{}, err
	}
	c, ok := among[name]
	if name == "" || !ok {
		return section{}, s.fault(s.values[field], field, "names nothing in this file")
	}
	return c, nil
}

// content reads a field that comes as <name>-data or as a file.
func (s section) content(name string) (data []byte, file string, err error) {
	text, err := s.text(name + "-data")
	if err != nil {
		return nil, "", err
	}
	if file, err = s.file(name); err != nil {
		return nil, "", err
	}
	if text != "" && file != "" {
		return nil, "", s.fault(s.values[name], name, name+"-data is given as well: give one")
	}
	if data, err = base64.StdEncoding.DecodeString(text); err != nil {
		return nil, "", s.fault(s.values[name+"-data"], name+"-data", "not base64")
	}
	return data, file, nil
}

// file reads a path, which must lead to a regular file that can be read.
func (s section) file(name string) (string, error) {
	path, err := s.text(name)
	if err != nil || path == "" {
		return "", err
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(s.dir, path)
	}
	if _, err := readFile(path); err != nil {
		return "", s.fault(s.values[name], name, path+": "+err.Error())
	}
	return path, nil
}

func (s section) text(name string) (string, error) {
	n := s.values[name]
	if n == nil {
		return "", nil
	}
	if n.Kind != yaml.ScalarNode {
		return "", s.fault(n, name, "not a string")
	}
	return n.Value, nil
}

// fault is an error about a field, at n or else at the section.
func (s section) fault(n *yaml.Node, field, what string) error {
	line := s.line
	if n != nil {
		line = n.Line
	}
	path := s.path
	if path != "" && field != "" {
		path += "."
	}
	if path += field; path == "" {
		return fmt.Errorf("line %d: %s", line, what)
	}
	return fmt.Errorf("line %d: %s: %s", line, path, what)
}
