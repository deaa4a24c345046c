// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
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

// audit prepares the API server's audit log, and returns the arguments for it.
func (e *env) audit() ([]string, error) {
	file := filepath.Join(e.dir, "audit.yaml")
	return []string{"--audit-policy-file=" + file, "--audit-log-path=" + e.auditLog()},
		os.WriteFile(file, []byte(policy), 0o600)
}

func (e *env) auditLog() string { return filepath.Join(e.dir, "audit.log") }

// counts are numbers of requests by kind, such as "get certificatesigningrequests".
type counts map[string]int

// requested counts what a node's agent, by its own name or with a token, has asked the API server since
// the log was as long as this, and returns how long it is now.
func (e *env) requested(since int) (c counts, length int, err error) {
	log, err := os.ReadFile(e.auditLog())
	if err != nil {
		return nil, 0, err
	}
	c = counts{}
	lines := bufio.NewScanner(bytes.NewReader(log[since:]))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line struct {
			Stage, Verb string
			ObjectRef   struct{ Resource string }
			RequestURI  string
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return nil, 0, fmt.Errorf("reading the audit log: %v", err)
		}
		// A stream is told of when it begins and when it ends, anything else when it is done.
		if (line.Verb == "watch") != (line.Stage == "ResponseStarted") {
			continue
		}
		what := line.ObjectRef.Resource
		if what == "" {
			what = line.RequestURI
		}
		c[line.Verb+" "+what]++
	}
	return c, len(log), lines.Err()
}

func (c counts) total() (n int) {
	for _, k := range c {
		n += k
	}
	return n
}

func (c counts) String() string {
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(c)) {
		parts = append(parts, fmt.Sprintf("%d %s", c[what], what))
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}
