// SPDX-License-Identifier: Apache-2.0

// Package permissions reads from the shipped manifests who may do what, as one table for each role, and
// its tests hold that table against docs/permissions.md and against what a real API server grants.
//
// It owns a reading of Role, ClusterRole and their bindings that knows what the manifests use: rules by
// resource or URL, subjects that are groups or ServiceAccounts. A ClusterRole that no manifest binds is a role
// of its own, for whomever the administrator binds to it. Aggregation is not in it, and a manifest that uses it is
// refused.
//
// Source: the page "Using RBAC Authorization" of the Kubernetes documentation.
package permissions

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Rule is one line of the table. Namespace "" is the whole cluster, no Names is any name.
type Rule struct {
	Namespace string   `yaml:"-"`
	Groups    []string `yaml:"apiGroups"`
	Resources []string `yaml:"resources"`
	Names     []string `yaml:"resourceNames"`
	Verbs     []string `yaml:"verbs"`
	// URLs are paths of the API server, or of servers that ask it; a rule has these or resources.
	URLs []string `yaml:"nonResourceURLs"`
}

// Request is one question to an authoriser. Name "" is a request that names no object.
// One about a URL names nothing else.
type Request struct{ Verb, Group, Resource, Namespace, Name, URL string }

// Allows is true if the rule grants the request.
func (r Rule) Allows(q Request) bool {
	if q.URL != "" || len(r.URLs) > 0 {
		return slices.Contains(r.URLs, q.URL) && slices.Contains(r.Verbs, q.Verb)
	}
	return (r.Namespace == "" || r.Namespace == q.Namespace) && slices.Contains(r.Groups, q.Group) &&
		slices.Contains(r.Resources, q.Resource) && slices.Contains(r.Verbs, q.Verb) &&
		(len(r.Names) == 0 || slices.Contains(r.Names, q.Name))
}

// Table holds the rules of each role. A role is named as its subject is at the API server: a group, or
// the user name of a ServiceAccount.
type Table map[string][]Rule

// Allows is true if any rule of the role grants the request.
func (t Table) Allows(role string, q Request) bool {
	return slices.ContainsFunc(t[role], func(r Rule) bool { return r.Allows(q) })
}

// manifest is what of a document matters here.
type manifest struct {
	Kind     string `yaml:"kind"`
	Metadata struct {
		Name, Namespace string
	} `yaml:"metadata"`
	Rules       []Rule `yaml:"rules"`
	Aggregation any    `yaml:"aggregationRule"`
	RoleRef     struct {
		Kind, Name string
	} `yaml:"roleRef"`
	Subjects []struct {
		Kind, Name, Namespace string
	} `yaml:"subjects"`
}

// Read reads every manifest below dir.
func Read(dir string) (Table, error) {
	var all []manifest
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		found, err := documents(b)
		if err != nil {
			return fmt.Errorf("reading %s: %v", path, err)
		}
		all = append(all, found...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return bind(all)
}

func documents(b []byte) (out []manifest, err error) {
	for d := yaml.NewDecoder(bytes.NewReader(b)); ; {
		var m manifest
		if err := d.Decode(&m); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
}

func bind(all []manifest) (Table, error) {
	roles := map[string][]Rule{}
	for _, m := range all {
		if m.Kind != "Role" && m.Kind != "ClusterRole" {
			continue
		}
		if m.Aggregation != nil || len(m.Rules) == 0 {
			return nil, fmt.Errorf("%s %s has no rules of its own", m.Kind, m.Metadata.Name)
		}
		roles[m.Kind+"/"+m.Metadata.Namespace+"/"+m.Metadata.Name] = m.Rules
	}
	table, bound := Table{}, map[string]bool{}
	for _, m := range all {
		if m.Kind != "RoleBinding" && m.Kind != "ClusterRoleBinding" {
			continue
		}
		namespace := m.Metadata.Namespace
		if m.RoleRef.Kind == "ClusterRole" {
			namespace = ""
		}
		role := m.RoleRef.Kind + "/" + namespace + "/" + m.RoleRef.Name
		bound[role] = true
		rules, ok := roles[role]
		if !ok {
			return nil, fmt.Errorf("%s %s names a role that is not there", m.Kind, m.Metadata.Name)
		}
		for _, s := range m.Subjects {
			name := s.Name
			if s.Kind == "ServiceAccount" {
				name = "system:serviceaccount:" + s.Namespace + ":" + s.Name
			}
			for _, r := range rules {
				r.Namespace = m.Metadata.Namespace
				table[name] = append(table[name], r)
			}
		}
	}
	for role, rules := range roles {
		if name, ok := strings.CutPrefix(role, "ClusterRole//"); ok && !bound[role] {
			table["ClusterRole "+name] = rules
		}
	}
	return table, nil
}

// Markdown is the table as the documentation shows it.
func (t Table) Markdown() string {
	var b strings.Builder
	for _, role := range slices.Sorted(maps.Keys(t)) {
		fmt.Fprintf(&b, "## %s\n\n| resource | names | where | verbs |\n|---|---|---|---|\n", role)
		for _, r := range slices.SortedStableFunc(slices.Values(t[role]), byNamespace) {
			for _, url := range r.URLs {
				fmt.Fprintf(&b, "| %s | | | %s |\n", url, strings.Join(r.Verbs, ", "))
			}
			for _, g := range r.Groups {
				for _, resource := range r.Resources {
					fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", strings.TrimSuffix(resource+"."+g, "."),
						or(strings.Join(r.Names, ", "), "any"),
						or(r.Namespace, "cluster"), strings.Join(r.Verbs, ", "))
				}
			}
		}
		b.WriteString("\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// byNamespace makes the table independent of the order of the manifests.
func byNamespace(a, b Rule) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), slices.Compare(a.Groups, b.Groups),
		slices.Compare(a.Resources, b.Resources), slices.Compare(a.Names, b.Names), slices.Compare(a.Verbs, b.Verbs))
}

func or(s, empty string) string {
	if s == "" {
		return empty
	}
	return s
}
