// SPDX-License-Identifier: Apache-2.0

//go:build real

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/cluster"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane"
)

// repo is the repository as seen from this folder.
const repo = "../../.."

// common is what both modes tell.
var common = []string{
	`10-demo01\.kubeconfig`,
	`node-cert-agent-[0-9a-v]{32} .* system:bootstrap:demo01 .* Pending`,
	`"system:bootstrap:demo01" asks for the first certificate of node`,
	`Identity: +active`,
	`\| wc -l\n +0\n`,
	`get controllerconfigs.node-cert-agent.io machine-config-controller\n +NAME`,
	`Error from server \(Forbidden\): controllerconfigs.node-cert-agent.io "another" is forbidden: User "node-cert-agent:node:node"`,
	`Error from server \(Forbidden\): secrets is forbidden: User "node-cert-agent:node:node"`,
	`kubelet-ca.crt holds kubelet-signer-1 and kubelet-signer-2\.`,
	`The new bytes were on disk [0-9.]+ m?s later\.`,
	`kubeAPIServerServingCAData  [0-9a-f]{16} CN=kubelet-signer-1 .* the ControllerConfig dropped it`,
	`The agent refuses it\. The last good file stays\.\nkubelet-ca.crt holds kubelet-signer-2\.`,
	`REFUSED +WHY\n +kubeAPIServerServingCAData  block 2 does not decode or is cut off`,
	`refused kubeAPIServerServingCAData: holds a private key`,
	`The root CA was good, and was written\.`,
	`Nothing is refused any more`,
	`The agent put it right [0-9.]+ m?s after`,
	`State: +following`,
	`wrote /etc/kubernetes/kubelet-ca.crt: different, 0 certificates added, 1 removed`,
	`That was the main job, in `,
}

// binary builds the demo.
func binary(t *testing.T) string {
	t.Helper()
	file := filepath.Join(openDir(t), "demo")
	if out, err := exec.Command("go", "build", "-o", file, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return file
}

// openDir is a temporary directory that every user may enter, as those of testing are not.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "demo")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// demo is the command with a $TMPDIR of its own, which must be empty in the end.
func demo(t *testing.T, file string, args ...string) (cmd *exec.Cmd, tmp string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	t.Cleanup(cancel)
	tmp = openDir(t)
	cmd = exec.CommandContext(ctx, file, args...)
	cmd.Dir, cmd.Env = repo, append(os.Environ(), "TMPDIR="+tmp)
	t.Cleanup(func() {
		if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	})
	return cmd, tmp
}

func wantSentences(t *testing.T, out []byte, patterns ...string) {
	t.Helper()
	for _, p := range patterns {
		if !regexp.MustCompile(p).Match(out) {
			t.Errorf("no %q", p)
		}
	}
	if t.Failed() {
		t.Logf("the demo printed\n%s", out)
	}
}

func TestRootSeesTheWholeStoryOnAHost(t *testing.T) {
	cmd, _ := demo(t, binary(t))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Error(err)
	}
	wantSentences(t, out, append(common,
		`systemd had reloaded reader.service [0-9.]+ m?s after the change`,
		`start\n +reload\n +reload\n +reload\n +the same`,
		`ReloadUnit ss unlisted.service replace\n +Call failed: .*(denied|authentication required)`,
		`Manager Reboot\n +Call failed: .*(denied|authentication required)`,
		`reader.service  reload  up to date`,
		`reload reader.service done`,
		`NODECERT_CERTS_ADDED=[0-9a-f]{64} CN=kubelet-signer-2`)...)
}

func TestAnOrdinaryUserSeesItInPlainMode(t *testing.T) {
	file, home := binary(t), openDir(t)
	cmd, tmp := demo(t, file, "-bin", filepath.Join(home, "bin"))
	provide(t, home)
	cmd.Dir = filepath.Join(home, "repo")
	cmd.Env = append(cmd.Env, "HOME="+home, "XDG_CACHE_HOME="+filepath.Join(home, "cache"),
		"GOCACHE="+filepath.Join(home, "gocache"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	for _, dir := range []string{home, tmp} {
		if err := os.Chown(dir, 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Error(err)
	}
	wantSentences(t, out, append(common, `Left out, because it takes root and systemd`)...)
	if bytes.Contains(out, []byte("reloaded")) {
		t.Error("there is talk of a reload")
	}
}

// provide gives a user who may read neither the repository nor the caches of root what the demo needs
// of them: agent and approver, the servers, and the sources that name their build and hold the manifests.
func provide(t *testing.T, home string) {
	t.Helper()
	for _, name := range []string{"node-cert-agent", "node-cert-controller"} {
		if err := cluster.Build(t.Context(), filepath.Join(home, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	servers, err := controlplane.Build(t.Context(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{
		servers.Dir:         "cache/node-cert-agent/controlplane/",
		repo + "/go.mod":    "repo/",
		repo + "/packaging": "repo/",
		repo + "/tests/harness/controlplane/servers": "repo/tests/harness/controlplane/",
	} {
		to = filepath.Join(home, to)
		if out, err := exec.Command("sh", "-c", `mkdir -p "$2" && cp -a "$1" "$2"`, "sh", from,
			to).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	if out, err := exec.Command("chmod", "-R", "go+rX", home).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// until reads lines up to one that begins with the prefix, and returns all of them.
func until(t *testing.T, lines *bufio.Scanner, prefix string) (out []string) {
	t.Helper()
	for lines.Scan() {
		out = append(out, lines.Text())
		if strings.HasPrefix(lines.Text(), prefix) {
			return out
		}
	}
	t.Fatalf("no line began with %q:\n%s", prefix, strings.Join(out, "\n"))
	return nil
}

func TestCtrlCInTheMiddleLeavesNothingBehind(t *testing.T) {
	cmd, _ := demo(t, binary(t), "-plain")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stdout)
	until(t, lines, "4. A rotation")
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, stdout) // the pipe must be read to its end before Wait
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitInterrupted {
		t.Errorf("the demo ended with %v, want exit code %d", err, exitInterrupted)
	}
}

func TestAReaderThatGoesAwayLeavesNothingBehind(t *testing.T) {
	cmd, _ := demo(t, "sh", "-c", `"$1" -plain | head -n 12 >/dev/null`, "sh", binary(t))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestWhatItSaysAboutUsingTheKeptPartsWorks(t *testing.T) {
	cmd, _ := demo(t, binary(t), "-plain", "-keep")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stdout)
	until(t, lines, "8. Everything is left running")
	var script strings.Builder
	for _, line := range until(t, lines, "Ctrl-C stops") {
		if command, ok := strings.CutPrefix(line, "    "); ok && !strings.HasPrefix(command, "tail -f") {
			script.WriteString(command + "\n")
		}
	}
	out, err := exec.Command("sh", "-e", "-c", script.String()).CombinedOutput()
	if err != nil {
		t.Errorf("%v, from\n%s", err, &script)
	}
	wantSentences(t, out, `kind: ControllerConfig`, `machine-config-controller patched`, `State: +following`)
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, stdout)
	if err := cmd.Wait(); err != nil {
		t.Errorf("Ctrl-C as the proper end: %v", err)
	}
}

// TestTryingByHandWorksAsDescribed runs the blocks of the page as one script, against a control plane
// whose administrator the shell is.
func TestTryingByHandWorksAsDescribed(t *testing.T) {
	page, err := os.ReadFile(repo + "/docs/usage/try.md")
	if err != nil {
		t.Fatal(err)
	}
	script := "set -e\n"
	for _, m := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllSubmatch(page, -1) {
		script += string(m[1])
	}
	plane, err := controlplane.Start(t.Context(), controlplane.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := plane.Stop(); err != nil {
			t.Error(err)
		}
	})
	servers, err := controlplane.Build(t.Context(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	cmd, _ := demo(t, "sh", "-c", script)
	cmd.Env = append(cmd.Env, "KUBECONFIG="+filepath.Join(plane.Dir(), "admin.kubeconfig"),
		"PATH="+servers.Dir+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Error(err)
	}
	wantSentences(t, out, `(?m)^write +/etc/kubernetes/kubelet-ca.crt \(kubeAPIServerServingCAData: missing\)$`,
		`(?m)^/etc/kubernetes/kubelet-ca.crt +kubeAPIServerServingCAData +in place`,
		`(?m)^wrote /etc/kubernetes/kubelet-ca.crt: different`)
}
