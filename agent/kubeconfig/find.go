// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// site is where a value stands.
type site struct {
	what       string // the value, for errors
	document   *yaml.Node
	node       *yaml.Node // the value
	start, end int        // of its text in the file, without quotes
}

// find locates the CA data of the current cluster.
func find(file []byte) (site, error) {
	return findValue(file, "the CA data", func(root *yaml.Node) (*yaml.Node, error) {
		cluster, err := current(root)
		if err != nil {
			return nil, err
		}
		return data(cluster)
	})
}

// findValue locates the value that in finds.
func findValue(file []byte, what string, in func(root *yaml.Node) (*yaml.Node, error)) (s site, err error) {
	s.what = what
	if s.document, err = parse(file); err != nil {
		return s, err
	}
	if s.node, err = in(s.document.Content[0]); err != nil {
		return s, err
	}
	s.start, s.end, err = s.locate(file)
	return s, err
}

// parse reads the one document of a file.
func parse(file []byte) (*yaml.Node, error) {
	if len(file) > maxBytes {
		return nil, fmt.Errorf("%d bytes, more than %d", len(file), maxBytes)
	}
	if !utf8.Valid(file) {
		return nil, errors.New("is not UTF-8")
	}
	d := yaml.NewDecoder(bytes.NewReader(file))
	var document, next yaml.Node
	if err := d.Decode(&document); errors.Is(err, io.EOF) {
		return nil, errors.New("is empty")
	} else if err != nil {
		return nil, notYAML(err)
	}
	if err := d.Decode(&next); err == nil {
		return nil, errors.New("holds more than one document")
	} else if !errors.Is(err, io.EOF) {
		return nil, notYAML(err)
	}
	return &document, nil
}

// notYAML keeps of the parser's error what cannot be content: its line.
func notYAML(err error) error {
	var line int
	if _, scanErr := fmt.Sscanf(err.Error(), "yaml: line %d:", &line); scanErr == nil {
		return fmt.Errorf("is not YAML at or near line %d", line)
	}
	return errors.New("is not YAML")
}

// current finds the cluster that clients of the file use: the current context's, or the only one.
func current(root *yaml.Node) (*yaml.Node, error) {
	clusters, err := field(root, "clusters", yaml.SequenceNode)
	if err != nil {
		return nil, err
	}
	if clusters == nil || len(clusters.Content) == 0 {
		return nil, errors.New("has no cluster")
	}
	name, err := currentName(root, "cluster")
	if err != nil {
		return nil, err
	}
	found, n, err := named(clusters, name)
	switch {
	case err != nil:
		return nil, err
	case n == 0 && len(clusters.Content) == 1:
		found = clusters.Content[0]
	case n == 0:
		return nil, fmt.Errorf("has %d clusters, and none is the current context's", len(clusters.Content))
	case n > 1:
		return nil, fmt.Errorf("has %d clusters of the current context's name", n)
	}
	cluster, err := field(found, "cluster", yaml.MappingNode)
	if err == nil && cluster == nil {
		err = fmt.Errorf("line %d: the cluster is empty", found.Line)
	}
	return cluster, err
}

// currentName is the name of the current context's cluster or user, or empty if there is none.
func currentName(root *yaml.Node, of string) (string, error) {
	context, err := field(root, "current-context", yaml.ScalarNode)
	if err != nil || context == nil {
		return "", err
	}
	contexts, err := field(root, "contexts", yaml.SequenceNode)
	if err != nil || contexts == nil {
		return "", err
	}
	found, n, err := named(contexts, context.Value)
	if err != nil || n == 0 {
		return "", err
	}
	if n > 1 {
		return "", fmt.Errorf("has %d contexts of the current one's name", n)
	}
	inner, err := field(found, "context", yaml.MappingNode)
	if err != nil || inner == nil {
		return "", err
	}
	value, err := field(inner, of, yaml.ScalarNode)
	if err != nil || value == nil {
		return "", err
	}
	return value.Value, nil
}

// named counts the elements of that name and returns the last. No element has the empty name.
func named(list *yaml.Node, name string) (found *yaml.Node, n int, err error) {
	for _, e := range list.Content {
		label, err := field(e, "name", yaml.ScalarNode)
		if err != nil {
			return nil, 0, err
		}
		if label != nil && name != "" && label.Value == name {
			found, n = e, n+1
		}
	}
	return found, n, nil
}

// data is the value of a cluster.
func data(cluster *yaml.Node) (*yaml.Node, error) {
	value, err := field(cluster, "certificate-authority-data", yaml.ScalarNode)
	if err != nil || value != nil {
		return value, err
	}
	path, err := field(cluster, "certificate-authority", yaml.ScalarNode)
	if err != nil {
		return nil, err
	}
	if path != nil {
		return nil, fmt.Errorf("line %d: the cluster names a file, certificate-authority, in place of the data", cluster.Line)
	}
	return nil, fmt.Errorf("line %d: the cluster has no certificate-authority-data", cluster.Line)
}

// field is the value of a key, which must be of that kind; nil if it is null or not there.
func field(mapping *yaml.Node, key string, kind yaml.Kind) (value *yaml.Node, err error) {
	if err := plain(mapping); err != nil {
		return nil, err
	}
	if mapping.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("line %d: is not a mapping", mapping.Line)
	}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		k, v := mapping.Content[i], mapping.Content[i+1]
		if err := plain(k); err != nil {
			return nil, err
		}
		switch {
		case k.Kind != yaml.ScalarNode || k.ShortTag() == "!!merge":
			return nil, fmt.Errorf("line %d: a merge key, or one that is not a word", k.Line)
		case k.Value != key:
			continue
		case value != nil:
			return nil, fmt.Errorf("line %d: a key for the second time", k.Line)
		}
		value = v
	}
	if value == nil {
		return nil, nil
	}
	if err := plain(value); err != nil {
		return nil, err
	}
	switch {
	case value.ShortTag() == "!!null":
		return nil, nil
	case value.Kind != kind, kind == yaml.ScalarNode && value.ShortTag() != "!!str":
		return nil, fmt.Errorf("line %d: a value is of another type than in a kubeconfig", value.Line)
	}
	return value, nil
}

// plain refuses the parts of YAML by which one place of a file speaks for another.
func plain(n *yaml.Node) error {
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		return fmt.Errorf("line %d: an anchor or alias", n.Line)
	case n.Style&yaml.TaggedStyle != 0:
		return fmt.Errorf("line %d: a tag", n.Line)
	}
	return nil
}
