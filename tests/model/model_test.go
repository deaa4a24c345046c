// SPDX-License-Identifier: Apache-2.0

//go:build real

// Package model checks the model of a CA rotation, docs/model, with spin: every state that can be reached.
package model

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/must"
)

// check gives what the checker says, and how many errors it found. It fails if not every state was looked at.
func check(t *testing.T, macros []string, compile []string, run ...string) (errors, report string) {
	t.Helper()
	dir := t.TempDir()
	source, err := filepath.Abs("../../docs/model/rotation.pml")
	must.Do(t, err)
	steps := [][]string{
		append(append([]string{"spin", "-a"}, macros...), source),
		append([]string{"gcc", "-O2", "-w", "-DCOLLAPSE", "-DVECTORSZ=2048", "-o", "pan", "pan.c"}, compile...),
		append([]string{"./pan", "-m1000000"}, run...),
	}
	var out []byte
	for _, s := range steps {
		c := exec.CommandContext(t.Context(), s[0], s[1:]...)
		c.Dir = dir
		if out, err = c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", s, err, out)
		}
	}
	report = string(out)
	found := regexp.MustCompile(`errors: (\d+)`).FindStringSubmatch(report)
	if found == nil || strings.Contains(report, "max search depth too small") {
		t.Fatalf("the search was not complete:\n%s", report)
	}
	return found[1], report
}

func TestNoNodeIsEverLost(t *testing.T) {
	if errors, report := check(t, nil, []string{"-DSAFETY"}, "-noclaim"); errors != "0" {
		t.Errorf("some run of the model loses a node:\n%s", report)
	}
}

func TestEveryFairRunEndsWithTheNewCAAlone(t *testing.T) {
	if errors, report := check(t, nil, []string{"-DNFAIR=6"}, "-a", "-f"); errors != "0" {
		t.Errorf("some run of the model does not converge:\n%s", report)
	}
}

// TestEachProtectionIsNeeded: a model that finds nothing when the gate is taken out says nothing with it.
func TestEachProtectionIsNeeded(t *testing.T) {
	for macro, without := range map[string]string{
		"NOGATE":   "the publisher asks nobody",
		"NOASK":    "the publisher believes reports from before its question",
		"NOEDIT":   "the publisher keeps a question although the sources changed and changed back",
		"NOHOLD":   "nodes hold nothing",
		"NOWAIT":   "the owner of the CAs renews the last server without asking",
		"OLDIMAGE": "machines are installed from an image without the new CA",
	} {
		t.Run(macro, func(t *testing.T) {
			if errors, _ := check(t, []string{"-D" + macro}, []string{"-DSAFETY"}, "-noclaim"); errors == "0" {
				t.Errorf("if %s, the model loses no node", without)
			}
		})
	}
}
