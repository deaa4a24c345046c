// SPDX-License-Identifier: Apache-2.0

//go:build real

package crash

import (
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/tests/testpki"
)

// changing are the calls by which the agent changes files: managed ones, and its own memory.
var changing = []string{"openat", "write", "fsync", "renameat", "unlinkat", "mkdirat", "fchmod", "flock"}

// agentTree is a tree on which an agent in plain mode works, and what stands in it.
type agentTree struct {
	*testing.T
	binary, base, dir string
}

func (a *agentTree) put(name, content string) {
	a.Helper()
	p := filepath.Join(a.base, name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		a.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
		a.Fatal(err)
	}
}

func (a *agentTree) has(name string, want ...string) {
	a.Helper()
	b, _ := os.ReadFile(filepath.Join(a.dir, name)) // a missing file is ""
	for _, w := range want {
		if string(b) == w {
			return
		}
	}
	a.Errorf("%s holds %.60q", name, b)
}

func manifest(ca []byte, registry string) string {
	text := base64.StdEncoding.EncodeToString(ca)
	return fmt.Sprintf("apiVersion: node-cert-agent.io/v1alpha1\nkind: ControllerConfig\nmetadata: {name: machine-config-controller}\n"+
		"spec:\n  kubeAPIServerServingCAData: %s\n  imageRegistryBundleData: [{file: %s, data: %s}]\n", text, registry, text)
}

// TestTheAgentIsKilledAndFooledAtEveryChangingCallOfApply disturbs the whole agent, its memory included,
// where the other tests here disturb the writer alone.
func TestTheAgentIsKilledAndFooledAtEveryChangingCallOfApply(t *testing.T) {
	work := t.TempDir()
	a := &agentTree{T: t, binary: buildAgent(t), base: filepath.Join(work, "base"), dir: filepath.Join(work, "base")}
	first, second := testpki.NewCA("first"), testpki.NewCA("second")
	a.put("etc/kubernetes/theirs.crt", "theirs\n")
	a.put("etc/docker/certs.d/theirs/ca.crt", "theirs\n")
	for name, text := range map[string]string{"first.yaml": manifest(first, "old"), "second.yaml": manifest(second, "new")} {
		if err := os.WriteFile(filepath.Join(work, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	apply := func(name string) []string {
		return []string{a.binary, "apply", "-f", filepath.Join(work, name), "--root", a.dir, "--now"}
	}
	if out, err := exec.Command(apply("first.yaml")[0], apply("first.yaml")[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("the first apply: %v\n%s", err, out)
	}
	a.dir = filepath.Join(work, "tree")
	kills, faults := 0, 0
	for _, name := range changing {
		i := 1
		for ; a.disturbed(apply("second.yaml"), name, i, "signal=KILL", first, second); i++ {
			kills++
		}
		for n := 1; n < i; n++ {
			for _, fault := range []string{"EIO", "ENOSPC", "EROFS"} {
				a.disturbed(apply("second.yaml"), name, n, "error="+fault, first, second)
				faults++
			}
		}
	}
	t.Logf("%d kills, %d faults", kills, faults)
	if kills < 50 {
		t.Errorf("only %d kills: they did not reach all of the apply", kills)
	}
}

// disturbed applies on a fresh tree with the n-th call of a name disturbed, and asserts that every file
// is whole then, and as it shall be after another apply. It tells whether the first did not succeed.
func (a *agentTree) disturbed(apply []string, name string, n int, how string, first, second []byte) bool {
	a.Helper()
	if out, err := exec.Command("sh", "-c", `rm -rf "$2" && cp -a "$1" "$2"`, "sh", a.base, a.dir).CombinedOutput(); err != nil {
		a.Fatalf("copying the tree: %v\n%s", err, out)
	}
	code, stderr := strace(os.DevNull, apply, "-e", "trace="+name, "-e", fmt.Sprintf("inject=%s:%s:when=%d", name, how, n))
	if code == 0 && how == "signal=KILL" {
		return false // no thread makes so many
	}
	if code > 2 || how == "signal=KILL" && code > 0 {
		a.Fatalf("%s at %s %d ends with %d: %s", how, name, n, code, stderr)
	}
	a.has("etc/kubernetes/kubelet-ca.crt", string(first), string(second))
	a.has("etc/docker/certs.d/old/ca.crt", string(first), "")
	a.has("etc/docker/certs.d/new/ca.crt", string(second), "")
	out, err := exec.Command(apply[0], apply[1:]...).CombinedOutput()
	if err != nil {
		a.Errorf("the next apply: %v\n%s", err, out)
	}
	a.has("etc/kubernetes/kubelet-ca.crt", string(second))
	a.has("etc/docker/certs.d/old/ca.crt", "")
	a.has("etc/docker/certs.d/new/ca.crt", string(second))
	a.has("etc/docker/certs.d/theirs/ca.crt", "theirs\n")
	a.has("etc/kubernetes/theirs.crt", "theirs\n")
	a.has("var/lib/node-cert-agent/state.json.bad", "")
	if a.Failed() {
		a.Fatalf("after %s at %s %d, which ended with %d: %s", how, name, n, code, stderr)
	}
	return code != 0
}
