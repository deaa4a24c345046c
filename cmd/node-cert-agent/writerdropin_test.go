// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
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
	}
	got := writerDropin(rows, func(string) string { return "/var/lib/elsewhere/ca.crt" })
	_, got, _ = strings.Cut(got, "[Service]\n")
	want := `ReadWritePaths="-/etc/containers/certs.d"
NoExecPaths="-/etc/containers/certs.d"
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

func TestTheShippedProfilesNeedNoDropin(t *testing.T) {
	for _, profile := range []string{"standalone", "openshift", "kubeadm"} {
		dir := t.TempDir()
		save(t, filepath.Join(dir, "50-site.yaml"), "apiVersion: config.node-cert-agent.io/v1alpha1\nprofile: "+profile+"\n")
		var out strings.Builder
		if code := run(t.Context(), []string{"writer-dropin", "--root", t.TempDir(), "--config-dir", dir}, &out, os.Stderr); code != 0 || !strings.HasSuffix(out.String(), "[Service]\n") {
			t.Errorf("%s: exit code %d, printed\n%s", profile, code, out.String())
		}
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
