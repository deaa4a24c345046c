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

func TestTheWriterIsOpenedForRowsElsewhereAndForNothingElse(t *testing.T) {
	rows := []plan.Row{
		{ID: plan.RootCAData, File: "/etc/kubernetes/sub/ca.crt"},
		{ID: plan.CloudProviderCAData, File: "/srv/own certs/100%/ca.crt"},
		{ID: plan.AdditionalTrustBundle, File: "/srv/trust/{sha256}.crt"},
		{ID: plan.ImageRegistryBundleData, File: "/etc/containers/certs.d/{name}/ca.crt"},
		{ID: plan.ImageRegistryBundleUserData, File: "/etc/containers/certs.d/{name}/ca.crt"},
		{ID: plan.KubeAPIServerServingCAData, File: "/etc/kubernetes/kubelet-ca.crt", FollowLink: true},
		{ID: plan.KubeconfigCAData, File: "/run/cluster/kubeconfig"}, // of /run the unit shows nothing, so this is shown
	}
	got := writerDropin(rows, func(string) string { return "/var/lib/elsewhere/ca.crt" })
	_, got, _ = strings.Cut(got, "[Service]\n")
	want := `ReadWritePaths="-/etc/containers/certs.d"
NoExecPaths="-/etc/containers/certs.d"
BindPaths="-/run/cluster"
NoExecPaths="-/run/cluster"
ReadWritePaths="-/srv/own certs/100%%"
NoExecPaths="-/srv/own certs/100%%"
ReadWritePaths="-/srv/trust"
NoExecPaths="-/srv/trust"
ReadWritePaths="-/var/lib/elsewhere"
NoExecPaths="-/var/lib/elsewhere"
`
	if got != want {
		t.Errorf("printed\n%s\nwant\n%s", got, want)
	}
}

// settings are the lines of a drop-in that are no comments.
func settings(text string) (lines []string) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines
}

func TestTheWriterIsOpenedForTheRowsOfEachProfileAndNoOthers(t *testing.T) {
	shipped := settings(read(t, "packaging/openshift/writer.conf"))
	for profile, dropin := range map[string][]string{"standalone": {"[Service]"}, "kubeadm": {"[Service]"}, "openshift": shipped} {
		dir := t.TempDir()
		save(t, filepath.Join(dir, "50-site.yaml"), "apiVersion: config.node-cert-agent.io/v1alpha1\nprofile: "+profile+"\n")
		var out strings.Builder
		code := run(t.Context(), []string{"writer-dropin", "--root", t.TempDir(), "--config-dir", dir}, &out, os.Stderr)
		if got := settings(out.String()); code != 0 || !slices.Equal(got, dropin) {
			t.Errorf("%s: exit code %d, needs\n%s\nand has\n%s", profile, code, strings.Join(got, "\n"), strings.Join(dropin, "\n"))
		}
		// The other way round: what is open has a row, or is where credentials are.
		f := &flags{root: t.TempDir(), configDirs: []string{dir}}
		s, err := f.load()
		if err != nil {
			t.Fatal(err)
		}
		for _, open := range slices.Concat(opened, openedBy(dropin)) {
			used := slices.ContainsFunc(s.Policy.Rows, func(r plan.Row) bool { return strings.HasPrefix(r.Directory()+"/", open+"/") })
			if !used && open != bootstrapDir && !elsewhere[open][profile] {
				t.Errorf("%s: the writer may write to %s, where no row has a file", profile, open)
			}
		}
	}
}

// elsewhere are directories that are open beside those of a profile's rows, and why that is right: which of the
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

func TestTheUnitOpensWhatWeBelieveItOpens(t *testing.T) {
	var got []string
	for line := range strings.Lines(read(t, "systemd/usr/lib/systemd/system/node-cert-agent-writer.service")) {
		if dirs, ok := strings.CutPrefix(line, "ReadWritePaths="); ok {
			for d := range strings.FieldsSeq(dirs) {
				got = append(got, strings.TrimPrefix(d, "-"))
			}
		}
	}
	want := slices.Clone(opened)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the unit opens %q, and the drop-in believes %q", got, want)
	}
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
