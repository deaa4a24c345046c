// SPDX-License-Identifier: Apache-2.0

package permissions

import (
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "write docs/permissions.md anew")

const (
	manifests = "../../packaging/kubernetes"
	page      = "../../docs/permissions.md"
	preface   = `# Who may do what in the cluster

Written by ` + "`go test ./tests/permissions -update`" + ` from the manifests in ` + "`packaging/kubernetes`" + `; a test on a real API
server asserts that it grants this and, to the same subjects, nothing else but what every authenticated
user has. Policies narrow it further: an agent writes the state object of its own node only, and asks for
certificates of one form only.

`
)

func TestTheDocumentedTableIsWhatTheManifestsGrant(t *testing.T) {
	table, err := Read(manifests)
	if err != nil {
		t.Fatal(err)
	}
	want := preface + table.Markdown()
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(page); err != nil || string(got) != want {
		t.Errorf("docs/permissions.md is not what the manifests grant (%v); go test ./tests/permissions -update", err)
	}
}

func TestARuleGrantsWhatItNamesAndNothingBeside(t *testing.T) {
	table := Table{"a": {{Namespace: "n", Groups: []string{"g"}, Resources: []string{"r"}, Names: []string{"x"},
		Verbs: []string{"get"}}}}
	good := Request{Verb: "get", Group: "g", Resource: "r", Namespace: "n", Name: "x"}
	if !table.Allows("a", good) || table.Allows("b", good) {
		t.Error("the rule does not grant what it names, or grants it to others")
	}
	reader := Table{"a": {{URLs: []string{"/metrics"}, Verbs: []string{"get"}}}}
	if !reader.Allows("a", Request{Verb: "get", URL: "/metrics"}) {
		t.Error("a URL that is named is not granted")
	}
	for _, q := range []Request{{Verb: "get", URL: "/"}, {Verb: "post", URL: "/metrics"}, {Verb: "get"}, good} {
		if reader.Allows("a", q) {
			t.Errorf("%+v is granted", q)
		}
	}
	for sentence, change := range map[string]func(*Request){
		"another verb":      func(q *Request) { q.Verb = "list" },
		"another group":     func(q *Request) { q.Group = "" },
		"a subresource":     func(q *Request) { q.Resource = "r/status" },
		"another namespace": func(q *Request) { q.Namespace = "" },
		"another name":      func(q *Request) { q.Name = "y" },
		"no name":           func(q *Request) { q.Name = "" },
		"a URL":             func(q *Request) { q.URL = "/metrics" },
	} {
		q := good
		change(&q)
		if table.Allows("a", q) {
			t.Errorf("%s is granted", sentence)
		}
	}
}
