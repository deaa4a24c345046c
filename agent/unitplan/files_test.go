// SPDX-License-Identifier: Apache-2.0

package unitplan

import (
	"strings"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

var policy = plan.Policy{Files: []plan.FileSpec{
	{Field: plan.KubeAPIServerServingCAData, Path: "/etc/kubernetes/kubelet-ca.crt", Mode: 0o644,
		OnChange: []string{"a.service"}},
	{Field: plan.ImageRegistryBundleData, Path: "/etc/docker/certs.d/{name}/ca.crt", Mode: 0o644},
	{Field: plan.ImageRegistryBundleUserData, Path: "/etc/docker/certs.d/{name}/ca.crt", Mode: 0o644},
}}

// entry is a desired file with some content.
func entry(field plan.Field, name string, content ...string) plan.Entry {
	data := []byte(strings.Join(content, ""))
	return plan.Entry{Key: plan.Key{Field: field, Name: name}, Data: data, Digest: plan.DigestOf(data)}
}

func kubelet(content ...string) plan.Entry {
	return entry(plan.KubeAPIServerServingCAData, "", content...)
}

// disk observes the entries as they would lie there after a commit.
func disk(entries ...plan.Entry) plan.Observed {
	o := plan.Observed{}
	for _, e := range entries {
		o[e.Key] = plan.File{Kind: plan.Regular, Digest: e.Digest, Mode: 0o644, Changed: time.Unix(1, 0)}
	}
	return o
}
