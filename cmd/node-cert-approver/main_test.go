// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestBadArgumentsAreUsageErrors(t *testing.T) {
	for _, args := range [][]string{
		{"-no-such-flag"}, {"argument"}, {"-max-lifetime", "9m"}, {"-max-lifetime", "2161h"}, {"-stale-after", "1s"},
		{"-stale-after", "x"}, {"-lease", "0s"},
	} {
		var out, complaint bytes.Buffer
		if code := run(t.Context(), args, &out, &complaint); code != 2 || out.Len() > 0 || !strings.Contains(complaint.String(), "error: ") {
			t.Errorf("%v: code %d, %s", args, code, complaint.String())
		}
	}
}

func TestVersionAndHelpSucceed(t *testing.T) {
	for _, arg := range []string{"-version", "-help"} {
		var out, help bytes.Buffer
		if code := run(t.Context(), []string{arg}, &out, &help); code != 0 || out.Len()+help.Len() == 0 {
			t.Errorf("%s: code %d", arg, code)
		}
	}
}

func TestAMissingKubeconfigFails(t *testing.T) {
	var out, complaint bytes.Buffer
	if code := run(t.Context(), []string{"-kubeconfig", filepath.Join(t.TempDir(), "none")}, &out, &complaint); code != 1 || complaint.Len() == 0 {
		t.Errorf("code %d, %s", code, complaint.String())
	}
}

func TestTheListOfNodes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "nodes")
	if err := os.WriteFile(file, []byte("# machines\nfirewall-1\n\n  firewall-2  # rack 7\n#firewall-3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for node, want := range map[string]bool{"firewall-1": true, "firewall-2": true, "firewall-3": false, "firewall": false} {
		if got, err := listed(file, node); err != nil || got != want {
			t.Errorf("%s: %v, %v", node, got, err)
		}
	}
	if found, err := listed("", "a"); found || err != nil {
		t.Errorf("no list: %v, %v", found, err)
	}
	if _, err := listed(file+"-gone", "a"); err == nil {
		t.Error("a list that cannot be read is no error, and nodes would be left for another reason")
	}
}
