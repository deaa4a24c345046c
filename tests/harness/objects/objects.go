// SPDX-License-Identifier: Apache-2.0

// Package objects is the corpus of what an API server may send, and of files that a host may have, that a
// node must survive: testdata, one file a case.
//
// A case is a YAML file of two documents below a comment that says what it is about: the input and the
// exact outcome. The input is an object as kubectl would show it, or the text of a file; see Kind. Most
// cases come from the tables in this package and are written by `go run ./tests/cmd/objects`, which
// leaves the outcome alone; others are written by hand. What is too large to be stored is made by
// Large and LargeTexts. Keys and certificates are the same at every run, so that digests can be stated.
//
// It judges nothing: what is right stands in the files, and in docs/decisions/0008-bad-input.md
// with the reasons.
package objects

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Clock is the moment at which the outcomes hold: it judges expiry.
var Clock = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// Kind is what the input of a case is, and the folder of all such cases.
type Kind string

// The kinds. Objects are controllerconfigs and ConfigMaps are the second source, each applied to a host
// without managed files or with a kubeconfig whose CA is CA("old"). PullSecrets are values of
// internalRegistryPullSecret, and Kubeconfigs are files into which CA("new") is put, both as text.
const (
	Objects     Kind = "."
	PullSecrets Kind = "pullsecrets"
	Kubeconfigs Kind = "kubeconfigs"
	ConfigMaps  Kind = "configmaps"
)

// Case is one input and what becomes of it.
type Case struct {
	// Name is the file's name without its ending.
	Name string
	// Object is the input in JSON, if it is an object, and Text if it is not.
	Object []byte
	Text   string
	// Outcome has a line for each file that is written, each list that counts as complete and each
	// refusal, with warnings; see the files.
	Outcome []string
}

// CA is the certificate of that name, in PEM.
func CA(name string) []byte { return ca(name) }

// Dir is the folder of the corpus, wherever the test runs.
func Dir() string {
	_, here, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(here), "testdata")
}

// All reads the cases of a kind, in the order of names.
func All(kind Kind) (cases []Case, err error) {
	files, err := filepath.Glob(filepath.Join(Dir(), string(kind), "*.yaml"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		c, err := read(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Base(file), err)
		}
		cases = append(cases, c)
	}
	return cases, nil
}

func read(file string) (c Case, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return Case{}, err
	}
	c.Name = strings.TrimSuffix(filepath.Base(file), ".yaml")
	if !bytes.HasPrefix(text, []byte("# ")) {
		return Case{}, fmt.Errorf("begins without a comment")
	}
	documents := yaml.NewDecoder(bytes.NewReader(text))
	var input any
	if err := documents.Decode(&input); err != nil {
		return Case{}, err
	}
	if text, ok := input.(string); ok {
		c.Text = text
	} else if c.Object, err = json.Marshal(input); err != nil {
		return Case{}, err
	}
	return c, documents.Decode(&c.Outcome)
}
