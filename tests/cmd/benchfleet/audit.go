// SPDX-License-Identifier: Apache-2.0

package main

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

// policy has the API server write down each request of agents, and no other.
const policy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, userGroups: ["node-cert-agent:nodes"]}
- {level: None}
`

// audit prepares the API server's audit log, and returns the arguments for it.
func (e *env) audit() ([]string, error) {
	file := filepath.Join(e.dir, "audit.yaml")
	return []string{"--audit-policy-file=" + file, "--audit-log-path=" + e.auditLog(), "--audit-log-maxsize=100000"},
		os.WriteFile(file, []byte(policy), 0o600)
}

func (e *env) auditLog() string { return filepath.Join(e.dir, "audit.log") }

// audited is how long the log is.
func (e *env) audited() (int64, error) {
	info, err := os.Stat(e.auditLog())
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// requested counts what agents asked the API server since the log was as long as this.
func (e *env) requested(since int64) (counts, error) {
	f, err := os.Open(e.auditLog())
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := f.Seek(since, io.SeekStart); err != nil {
		return nil, err
	}
	return count(f)
}

// counts are numbers of requests by kind, such as "watch controllerconfigs 200".
type counts map[string]int

// count reads an audit log. The last line may not be complete yet.
func count(log io.Reader) (counts, error) {
	c := counts{}
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

// total is how many there are, without those of a resource.
func (c counts) total(without string) (n int) {
	for kind, k := range c {
		if !strings.Contains(kind, without) {
			n += k
		}
	}
	return n
}

// lines are the kinds and how many there are of each, the most first.
func (c counts) lines() (all []string) {
	kinds := slices.SortedFunc(maps.Keys(c), func(a, b string) int {
		return cmp.Or(cmp.Compare(c[b], c[a]), cmp.Compare(a, b))
	})
	for _, kind := range kinds {
		all = append(all, fmt.Sprintf("%d %s", c[kind], kind))
	}
	return all
}
