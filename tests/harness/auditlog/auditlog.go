// SPDX-License-Identifier: Apache-2.0

// Package auditlog counts what agents and their tokens ask of an API server, by its audit log.
//
// Source: https://kubernetes.io/docs/reference/config-api/apiserver-audit.v1/.
package auditlog

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// policy has the API server write down each request of agents and their tokens, and no other.
const policy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, userGroups: ["node-cert-agent:nodes", "system:bootstrappers:node-cert-agent"]}
- {level: None}
`

// Log is the audit log of one API server.
type Log struct{ file string }

// New prepares a log in dir, and returns the arguments with which the API server writes it.
func New(dir string) (l Log, args []string, err error) {
	rules := filepath.Join(dir, "audit.yaml")
	l.file = filepath.Join(dir, "audit.log")
	return l, []string{"--audit-policy-file=" + rules, "--audit-log-path=" + l.file, "--audit-log-maxsize=100000"},
		os.WriteFile(rules, []byte(policy), 0o600)
}

// Length is how long the log is now, in bytes: a mark for Since.
func (l Log) Length() (int64, error) {
	info, err := os.Stat(l.file)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// Since counts what was asked since the log was as long as mark.
func (l Log) Since(mark int64) (Counts, error) {
	f, err := os.Open(l.file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := f.Seek(mark, io.SeekStart); err != nil {
		return nil, err
	}
	return count(f)
}

// Counts are numbers of requests by kind: the verb, the resource or path, and the status of the answer, such as "watch
// controllerconfigs 200".
type Counts map[string]int

// count reads an audit log. The last line may not be complete yet.
func count(log io.Reader) (Counts, error) {
	c := Counts{}
	for lines := bufio.NewReader(log); ; {
		text, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return c, nil
		}
		if err != nil {
			return nil, err
		}
		var line struct {
			Stage, Verb    string
			ObjectRef      struct{ Resource string }
			RequestURI     string
			ResponseStatus struct{ Code int }
		}
		if err := json.Unmarshal(bytes.TrimSpace(text), &line); err != nil {
			return nil, fmt.Errorf("reading the audit log: %v", err)
		}
		// A stream is told of when it begins and when it ends, anything else when it is done.
		if (line.Verb == "watch") != (line.Stage == "ResponseStarted") {
			continue
		}
		what := line.ObjectRef.Resource
		if what == "" {
			what, _, _ = strings.Cut(line.RequestURI, "?")
		}
		c[fmt.Sprintf("%s %s %d", line.Verb, what, line.ResponseStatus.Code)]++
	}
}

// Total is how many there are.
func (c Counts) Total() (n int) {
	for _, k := range c {
		n += k
	}
	return n
}

// Without leaves out those of a resource.
func (c Counts) Without(resource string) Counts {
	rest := maps.Clone(c)
	maps.DeleteFunc(rest, func(kind string, _ int) bool { return strings.Contains(kind, " "+resource+" ") })
	return rest
}

// Lines are the kinds and how many there are of each, the most first.
func (c Counts) Lines() (all []string) {
	kinds := slices.SortedFunc(maps.Keys(c), func(a, b string) int {
		return cmp.Or(cmp.Compare(c[b], c[a]), cmp.Compare(a, b))
	})
	for _, kind := range kinds {
		all = append(all, fmt.Sprintf("%d %s", c[kind], kind))
	}
	return all
}

// String has the lines in one.
func (c Counts) String() string {
	return cmp.Or(strings.Join(c.Lines(), ", "), "none")
}
