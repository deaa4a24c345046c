// SPDX-License-Identifier: Apache-2.0

package writer

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

func TestTheWriterIsOpenedForFieldsElsewhereAndForNothingElse(t *testing.T) {
	specs := []plan.FileSpec{
		{Field: plan.RootCAData, Path: "/etc/kubernetes/sub/ca.crt"},
		{Field: plan.CloudProviderCAData, Path: "/srv/own certs/100%/ca.crt"},
		{Field: plan.AdditionalTrustBundle, Path: "/srv/trust/{sha256}.crt"},
		{Field: plan.ImageRegistryBundleData, Path: "/etc/containers/certs.d/{name}/ca.crt"},
		{Field: plan.ImageRegistryBundleUserData, Path: "/etc/containers/certs.d/{name}/ca.crt"},
		{Field: plan.KubeAPIServerServingCAData, Path: "/etc/kubernetes/kubelet-ca.crt", FollowLink: true},
		{Field: plan.KubeconfigCAData, Path: "/run/cluster/kubeconfig"}, // of /run the unit shows nothing, so this is shown
	}
	got := Dropin(specs, func(string) string { return "/var/lib/elsewhere/ca.crt" })
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

func TestTheUnitOpensWhatWeBelieveItOpens(t *testing.T) {
	unit, err := os.ReadFile("../../systemd/usr/lib/systemd/system/node-cert-agent-writer.service")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(string(unit)) {
		if dirs, ok := strings.CutPrefix(line, "ReadWritePaths="); ok {
			for d := range strings.FieldsSeq(dirs) {
				got = append(got, strings.TrimPrefix(d, "-"))
			}
		}
	}
	want := slices.Clone(writableAsShipped)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the unit opens %q, and the drop-in believes %q", got, want)
	}
}
