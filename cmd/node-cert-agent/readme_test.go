// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// TestTheReadmeCanBeTriedAsWritten runs the block "Try it in 60 seconds" line by line, the agent's commands in this
// process. What it says of the exit code of diff, and of a file that is no bundle, is looked at as well.
func TestTheReadmeCanBeTriedAsWritten(t *testing.T) {
	_, text, found := strings.Cut(read(t, "README.md"), "\n## Try it in 60 seconds\n")
	lines := blocks(text, "sh")
	if !found || len(lines) == 0 {
		t.Fatal("README.md has no block to try")
	}
	t.Chdir(t.TempDir())
	var out strings.Builder
	agent := func(command string) int { return run(t.Context(), strings.Fields(command), &out, &out) }
	for line := range strings.Lines(lines[0]) {
		command, ours := strings.CutPrefix(strings.TrimSpace(line), "bin/node-cert-agent ")
		_, err := exec.LookPath("openssl")
		switch {
		case ours:
			want := 0
			if strings.HasPrefix(command, "diff ") {
				want = exitPending
			}
			if code := agent(command); code != want {
				t.Errorf("%s: exit code %d\n%s", command, code, &out)
			}
		case command == "make build":
		case strings.HasPrefix(command, "openssl ") && err != nil:
			save(t, "ca.crt", string(testpki.NewCA("my-ca")))
		default:
			if said, err := exec.CommandContext(t.Context(), "sh", "-c", command).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", command, err, said)
			}
		}
	}
	want, err := os.ReadFile("ca.crt")
	if err != nil {
		t.Fatal(err)
	}
	save(t, "bad.pem", "no bundle")
	if code := agent("apply --root tree -f bad.pem --field kubeAPIServerServingCAData"); code != 1 {
		t.Errorf("what is no bundle: exit code %d", code)
	}
	if got, err := os.ReadFile("tree" + kubeletCA); err != nil || string(got) != string(want) {
		t.Errorf("the last good file does not stay: %q, %v", got, err)
	}
	planned := "write   " + kubeletCA + " (kubeAPIServerServingCAData: missing)"
	for _, said := range []string{planned, "CN=my-ca, until ", "in place"} {
		if !strings.Contains(out.String(), said) {
			t.Errorf("nothing says %q in\n%s", said, &out)
		}
	}
}

// TestTheReadmeInstallsAsTheInstallPageDoes: the commands of that page are run, on hosts, by tests/packages and
// tests/enable.
func TestTheReadmeInstallsAsTheInstallPageDoes(t *testing.T) {
	_, text, _ := strings.Cut(read(t, "README.md"), "\n## Install\n")
	text, _, found := strings.Cut(text, "\n## ")
	page, commands := read(t, "docs/usage/install.md"), strings.Split(strings.Join(blocks(text, ""), ""), "\n")
	for _, m := range regexp.MustCompile("`([^`\n]+)`").FindAllStringSubmatch(text, -1) {
		commands = append(commands, m[1])
	}
	for _, command := range commands {
		if !strings.Contains(page, command) {
			t.Errorf("docs/usage/install.md does not have the command %q", command)
		}
	}
	if !found || len(commands) < 6 {
		t.Errorf("found the commands %q", commands)
	}
}
