// SPDX-License-Identifier: Apache-2.0

package writer

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/agent/disk"
	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

const hidden = "the-credential"

func kubeconfigOf(ca string) string {
	return "clusters:\n- name: a\n  cluster:\n    certificate-authority-data: " +
		base64.StdEncoding.EncodeToString([]byte(ca)) +
		"\nusers: [{name: u, user: {token: " + hidden + "}}]\n"
}

// withSecrets serves a kubeconfig and a pull secret, over its socket.
func withSecrets(t *testing.T, kubeconfig, pull string) (*Client, string) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"kubeconfig": kubeconfig, "pull.json": pull} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "d"), 0o755); err != nil {
		t.Fatal(err)
	}
	tree, err := disk.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	local := New([]plan.FileSpec{
		{Field: plan.KubeconfigCAData, Path: "/kubeconfig"},
		{Field: plan.KubeletKubeconfigCAData, Path: "/d/kubeconfig"},
		{Field: plan.InternalRegistryPullSecret, Path: "/pull.json", Mode: 0o600, UID: -1, GID: -1},
	}, tree, func(plan.FileSpec, []byte) ([]pki.Cert, error) { return nil, nil })
	return Dial(serve(t, local).socket), dir
}

func TestOfAKubeconfigOnlyTheCALeavesTheWriter(t *testing.T) {
	c, dir := withSecrets(t, kubeconfigOf("old"), "{}")
	ctx := context.Background()
	got, err := c.Observe(ctx, []plan.Query{{Key: key(plan.KubeconfigCAData, "")},
		{Key: key(plan.KubeletKubeconfigCAData, "")}})
	if err != nil {
		t.Fatal(err)
	}
	if string(got[0].Data) != "old\n" || got[0].Digest != plan.DigestOf([]byte("old\n")) || got[0].Mode != 0o600 {
		t.Errorf("observed %+v, want the CA", got[0])
	}
	if got[1].Kind != plan.Absent || !strings.Contains(got[1].Reason, "missing") {
		t.Errorf("a missing one is %+v, want absent, with the reason", got[1])
	}
	if text := fmt.Sprintf("%+v %q", got, got[0].Data); strings.Contains(text, hidden) {
		t.Errorf("a credential left: %s", text)
	}
	if err := c.Commit(ctx, writes(plan.KubeconfigCAData, "", "new\n")); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(filepath.Join(dir, "kubeconfig")); string(b) != kubeconfigOf("new\n") {
		t.Errorf("now there is %s", b)
	}
	if err := c.Commit(ctx, writes(plan.KubeletKubeconfigCAData, "", "new\n")); kind(err) != failed {
		t.Errorf("a missing one was written: %v", err)
	}
	if left, _ := os.ReadDir(filepath.Join(dir, "d")); len(left) > 0 {
		t.Errorf("it was made: %v", left)
	}
}

func TestABrokenKubeconfigIsToldWithoutItsContent(t *testing.T) {
	c, dir := withSecrets(t, kubeconfigOf("old")+"\t*"+hidden+": [", "{}")
	ctx := context.Background()
	got, err := c.Observe(ctx, []plan.Query{{Key: key(plan.KubeconfigCAData, "")}})
	if err != nil || got[0].Kind != plan.Irregular || !strings.Contains(got[0].Reason, "not YAML") ||
		strings.Contains(got[0].Reason, hidden) {
		t.Errorf("observed %+v, %v", got, err)
	}
	before, _ := os.ReadFile(filepath.Join(dir, "kubeconfig"))
	if err := c.Commit(ctx, writes(plan.KubeconfigCAData, "", "new\n")); kind(err) != failed ||
		strings.Contains(err.Error(), hidden) {
		t.Errorf("commit: %v", err)
	}
	if after, _ := os.ReadFile(filepath.Join(dir, "kubeconfig")); !bytes.Equal(before, after) {
		t.Errorf("now there is %s", after)
	}
}

func TestAPullSecretThatIsThereIsTakenByItsDigestOnly(t *testing.T) {
	c, _ := withSecrets(t, kubeconfigOf("old"), hidden)
	got, err := c.Observe(context.Background(), []plan.Query{{Key: key(plan.InternalRegistryPullSecret, "")}})
	if err != nil || got[0].Digest != plan.DigestOf([]byte(hidden)) || got[0].Data != nil {
		t.Errorf("observed %+v, %v; want a digest and no bytes", got, err)
	}
}
