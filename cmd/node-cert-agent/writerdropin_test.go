// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// settings are the lines of a drop-in that are no comments.
func settings(text string) (lines []string) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines
}

func TestTheWriterIsOpenedForTheFieldsOfEachProfileAndNoOthers(t *testing.T) {
	shipped := settings(read(t, "packaging/openshift/writer.conf"))
	for profile, dropin := range map[string][]string{"standalone": {"[Service]"}, "kubeadm": {"[Service]"},
		"openshift": shipped} {
		dir := t.TempDir()
		save(t, filepath.Join(dir, "50-site.yaml"), "apiVersion: config.node-cert-agent.io/v1alpha1\nprofile: "+profile+"\n")
		var out strings.Builder
		code := run(t.Context(), []string{"writer-dropin", "--root", t.TempDir(), "--config-dir", dir}, &out, os.Stderr)
		if got := settings(out.String()); code != 0 || !slices.Equal(got, dropin) {
			t.Errorf("%s: exit code %d, needs\n%s\nand has\n%s", profile, code, strings.Join(got, "\n"),
				strings.Join(dropin, "\n"))
		}
		// The other way round: what is open has a field, or is where credentials are.
		f := &flags{root: t.TempDir(), configDirs: []string{dir}}
		s, err := f.load()
		if err != nil {
			t.Fatal(err)
		}
		for _, open := range slices.Concat(unitOpens(t), openedBy(dropin)) {
			used := slices.ContainsFunc(s.Policy.Files, func(r plan.FileSpec) bool {
				return strings.HasPrefix(r.Directory()+"/", open+"/")
			})
			if !used && open != bootstrapDir && !elsewhere[open][profile] {
				t.Errorf("%s: the writer may write to %s, where no field has a file", profile, open)
			}
		}
	}
}

// elsewhere are directories that are open beside those of a profile's fields, and why that is right: which of the
// two a host has for anchors is a matter of its distribution, whose settings are not in a profile.
var elsewhere = map[string]map[string]bool{
	"/etc/pki/ca-trust/source/anchors": {"openshift": true},
	"/usr/local/share/ca-certificates": {"standalone": true, "kubeadm": true, "openshift": true},
}

func openedBy(dropin []string) (dirs []string) {
	for _, line := range dropin {
		if d, ok := strings.CutPrefix(line, "ReadWritePaths=\"-"); ok {
			dirs = append(dirs, strings.TrimSuffix(d, "\""))
		}
	}
	return dirs
}

func TestTheMachineConfigBringsTheDropinOfItsProfile(t *testing.T) {
	unit := regexp.MustCompile(`(?s)- name: node-cert-agent-writer\.service\n.*?contents: \|\n(.*?)(\n  - |$)`)
	m := unit.FindStringSubmatch(read(t, "packaging/ignition/openshift.bu"))
	if m == nil {
		t.Fatal("it has no drop-in for the writer")
	}
	if got, want := settings(m[1]), settings(read(t, "packaging/openshift/writer.conf")); !slices.Equal(got, want) {
		t.Errorf("it brings %q, want %q", got, want)
	}
}

// unitOpens are the directories that the unit has writable as it is shipped.
func unitOpens(t *testing.T) (dirs []string) {
	t.Helper()
	for line := range strings.Lines(read(t, "systemd/usr/lib/systemd/system/node-cert-agent-writer.service")) {
		if more, ok := strings.CutPrefix(line, "ReadWritePaths="); ok {
			for d := range strings.FieldsSeq(more) {
				dirs = append(dirs, strings.TrimPrefix(d, "-"))
			}
		}
	}
	return dirs
}

func TestALinkIsFollowedOnTheHostThatIsMeant(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	save(t, filepath.Join(root, "etc/real"), "x")
	if err := os.Symlink("real", filepath.Join(root, "etc/link")); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{"/etc/link": "/etc/real", "/etc/missing": "/etc/missing"} {
		if got := resolve(root, file); got != want {
			t.Errorf("%s leads to %s, want %s", file, got, want)
		}
	}
}
