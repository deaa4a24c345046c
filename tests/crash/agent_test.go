// SPDX-License-Identifier: Apache-2.0

//go:build real

package crash

import (
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// changing are the calls by which the agent changes files: managed ones, and its own memory. reading are
// the others that it makes of a file system.
var (
	changing = []string{"openat", "write", "pwrite64", "ftruncate", "fsync", "renameat", "unlinkat", "mkdirat", "fchmod",
		"flock"}
	reading = []string{"newfstatat", "fstat", "getdents64", "read", "pread64", "close"}
)

// agentTree is a tree on which an agent in plain mode works, and what stands in it.
type agentTree struct {
	*testing.T
	binary, base, dir string
	first, second     []byte
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
	if slices.Contains(want, string(b)) {
		return
	}
	a.Errorf("%s holds %.60q", name, b)
}

func manifest(ca []byte, registry string) string {
	text := base64.StdEncoding.EncodeToString(ca)
	return fmt.Sprintf("apiVersion: node-cert-agent.io/v1alpha1\nkind: ControllerConfig\nmetadata: {name: "+
		"machine-config-controller}\n"+
		"spec:\n  kubeAPIServerServingCAData: %s\n  imageRegistryBundleData: [{file: %s, data: %s}]\n", text, registry, text)
}

// newAgentTree is one on which the agent has once applied a CA, and the command that applies another.
func newAgentTree(t *testing.T) (a *agentTree, next []string) {
	t.Helper()
	work := t.TempDir()
	a = &agentTree{T: t, binary: buildAgent(t), base: filepath.Join(work, "base"), dir: filepath.Join(work, "base"),
		first: testpki.NewCA("first"), second: testpki.NewCA("second")}
	a.put("etc/kubernetes/theirs.crt", "theirs\n")
	a.put("etc/docker/certs.d/theirs/ca.crt", "theirs\n")
	for name, text := range map[string]string{"first.yaml": manifest(a.first, "old"),
		"second.yaml": manifest(a.second, "new")} {
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
	return a, apply("second.yaml")
}

// misses is after how many numbers in a row that no thread reached there is nothing more to reach. What is
// counted are the calls of one thread, and which thread makes how many of them differs from run to run.
const misses = 3

// TestTheAgentIsKilledAndFooledAtEveryCallOfApply disturbs the whole agent, its memory included, where the
// other tests here disturb the writer alone.
func TestTheAgentIsKilledAndFooledAtEveryCallOfApply(t *testing.T) {
	a, apply := newAgentTree(t)
	kills, faults := 0, 0
	for _, name := range slices.Concat(changing, reading) {
		injected := []string{"EIO"}
		if slices.Contains(changing, name) {
			injected = []string{"EIO", "ENOSPC", "EROFS"}
		}
		most, missed := 0, 0
		for i := 1; missed < misses; i++ {
			if missed++; a.disturbed(apply, name, i, "signal=KILL") {
				kills++
				most, missed = i, 0
			}
		}
		for n := 1; n <= most; n++ {
			for _, fault := range injected {
				a.disturbed(apply, name, n, "error="+fault)
				faults++
			}
		}
	}
	t.Logf("%d kills, %d faults", kills, faults)
	if kills < 300 {
		t.Errorf("only %d kills: they did not reach all of the apply", kills)
	}
}

// disturbed applies on a fresh tree with the n-th call of a name disturbed. It tells whether that did not
// succeed.
func (a *agentTree) disturbed(apply []string, name string, n int, how string) bool {
	a.Helper()
	a.renew()
	code, stderr := strace(os.DevNull, apply, "-e", "trace="+name, "-e", fmt.Sprintf("inject=%s:%s:when=%d", name, how, n))
	if code == 0 && how == "signal=KILL" {
		return false // no thread made so many
	}
	if code > 2 || how == "signal=KILL" && code > 0 {
		a.Fatalf("%s at %s %d ends with %d: %s", how, name, n, code, stderr)
	}
	if a.survived(apply); a.Failed() {
		a.Fatalf("after %s at %s %d, which ended with %d: %s", how, name, n, code, stderr)
	}
	return code != 0
}

// TestTheAgentIsCutShortInEveryFileItWrites limits the size of files: a write that meets the limit is cut
// there, and the next fails.
func TestTheAgentIsCutShortInEveryFileItWrites(t *testing.T) {
	a, apply := newAgentTree(t)
	failed := 0
	const largest = 8 << 10 // more than any file here
	for size := 0; size <= largest; size += 61 {
		a.renew()
		cmd := exec.Command("prlimit", append([]string{"--core=0", "--fsize=" + strconv.Itoa(size)}, apply...)...)
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != 0 {
			failed++
			if code > 2 || !strings.Contains(string(out), "file too large") {
				t.Errorf("with files of %d bytes it ends with %d: %s", size, code, out)
			}
		}
		if a.survived(apply); t.Failed() {
			t.Fatalf("after a limit of %d bytes: %s", size, out)
		}
	}
	t.Logf("%d limits were met", failed)
	if failed < 10 || failed > largest/61 {
		t.Errorf("%d limits were met", failed)
	}
}

func (a *agentTree) renew() {
	a.Helper()
	if out, err := exec.Command("sh", "-c", `rm -rf "$2" && cp -a "$1" "$2"`, "sh", a.base,
		a.dir).CombinedOutput(); err != nil {
		a.Fatalf("copying the tree: %v\n%s", err, out)
	}
}

// survived asserts that every file is whole, and as it shall be after another apply.
func (a *agentTree) survived(apply []string) {
	a.Helper()
	first, second := string(a.first), string(a.second)
	a.has("etc/kubernetes/kubelet-ca.crt", first, second)
	a.has("etc/docker/certs.d/old/ca.crt", first, "")
	a.has("etc/docker/certs.d/new/ca.crt", second, "")
	if out, err := exec.Command(apply[0], apply[1:]...).CombinedOutput(); err != nil {
		a.Errorf("the next apply: %v\n%s", err, out)
	}
	a.has("etc/kubernetes/kubelet-ca.crt", second)
	a.has("etc/docker/certs.d/old/ca.crt", "")
	a.has("etc/docker/certs.d/new/ca.crt", second)
	a.has("etc/docker/certs.d/theirs/ca.crt", "theirs\n")
	a.has("etc/kubernetes/theirs.crt", "theirs\n")
	a.has("var/lib/node-cert-agent/state.json.bad", "")
}
