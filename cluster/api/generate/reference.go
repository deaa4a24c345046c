// SPDX-License-Identifier: Apache-2.0

// Command generate writes the reference of our kinds, docs/api.md, to standard output: what their definitions say,
// which controller-gen makes of the Go types. Its arguments are the files of the definitions. `make generate` runs it,
// after controller-gen, which is in the same module.
//
// Source: CustomResourceDefinition of apiextensions.k8s.io/v1.
package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// definition is what of a CustomResourceDefinition is shown.
type definition struct {
	Spec struct {
		Names struct {
			Kind       string   `yaml:"kind"`
			Plural     string   `yaml:"plural"`
			ShortNames []string `yaml:"shortNames"`
		} `yaml:"names"`
		Group    string `yaml:"group"`
		Versions []struct {
			Name   string `yaml:"name"`
			Schema struct {
				OpenAPIV3Schema schema `yaml:"openAPIV3Schema"`
			} `yaml:"schema"`
		} `yaml:"versions"`
	} `yaml:"spec"`
}

// schema is what of a JSONSchemaProps is shown.
type schema struct {
	Type        string            `yaml:"type"`
	Format      string            `yaml:"format"`
	Description string            `yaml:"description"`
	Enum        []string          `yaml:"enum"`
	Default     any               `yaml:"default"`
	Required    []string          `yaml:"required"`
	Properties  map[string]schema `yaml:"properties"`
	Items       *schema           `yaml:"items"`
}

const head = `# API reference

This page lists every field of our kinds, for whoever writes or reads them. ` + "`make generate`" + ` makes it from the
Go types in ` + "`cluster/api/v1alpha1`" + `; ` + "`kubectl explain`" + ` shows the same texts.
`

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(out io.Writer, files []string) error {
	text := head
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var d definition
		if err := yaml.Unmarshal(raw, &d); err != nil {
			return fmt.Errorf("%s: %v", file, err)
		}
		if len(d.Spec.Versions) != 1 {
			return fmt.Errorf("%s: has %d versions, want 1", file, len(d.Spec.Versions))
		}
		text += page(d)
	}
	_, err := io.WriteString(out, text)
	return err
}

// page is the part about one kind.
func page(d definition) string {
	v := d.Spec.Versions[0]
	names := d.Spec.Names
	root := v.Schema.OpenAPIV3Schema
	out := fmt.Sprintf("\n## %s\n\n`%s/%s`, `kubectl get %s`\n\n%s\n\n| field | type | meaning |\n|---|---|---|\n",
		names.Kind, d.Spec.Group, v.Name, cmp.Or(strings.Join(names.ShortNames, ", "), names.Plural), root.Description)
	for _, name := range slices.Sorted(maps.Keys(root.Properties)) {
		if name == "spec" || name == "status" {
			out += lines(name, root.Properties[name], slices.Contains(root.Required, name))
		}
	}
	return out
}

// lines are those of one field and what is in it.
func lines(path string, s schema, required bool) string {
	kind, inner := s.Type, s
	if s.Items != nil {
		kind, inner, path = "list of "+s.Items.Type, *s.Items, path+"[]"
	}
	if s.Format != "" && s.Format != "int64" {
		kind += " (" + s.Format + ")"
	}
	text := strings.Join(strings.Fields(s.Description), " ")
	if len(s.Enum) > 0 {
		text += " One of `" + strings.Join(s.Enum, "`, `") + "`."
	}
	if s.Default != nil && s.Default != "" {
		text += fmt.Sprintf(" Default: `%v`.", s.Default)
	}
	if required {
		text += " Required."
	}
	out := fmt.Sprintf("| `%s` | %s | %s |\n", path, kind, strings.ReplaceAll(strings.TrimSpace(text), "|", `\|`))
	for _, name := range slices.Sorted(maps.Keys(inner.Properties)) {
		out += lines(path+"."+name, inner.Properties[name], slices.Contains(inner.Required, name))
	}
	return out
}
