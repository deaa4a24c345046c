// SPDX-License-Identifier: Apache-2.0

//go:build real

package crash

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/kubeconfigs"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/wait"
)

// marked is in the token of a bootstrap file, and so in the agent's memory.
const marked = "marker0token0sec"

// TestAnAgentThatDiesLeavesNoCoreWhereverItWasStarted: by hand there is no unit that forbids one.
func TestAnAgentThatDiesLeavesNoCoreWhereverItWasStarted(t *testing.T) {
	root, work := t.TempDir(), t.TempDir()
	for dir, mode := range map[string]os.FileMode{"etc/kubernetes": 0o755, "etc/docker/certs.d": 0o755,
		"etc/node-cert-agent/bootstrap.d": 0o700} {
		if err := os.MkdirAll(filepath.Join(root, dir), mode); err != nil {
			t.Fatal(err)
		}
	}
	kubeconfig := string(kubeconfigs.Token("https://127.0.0.1:1", testpki.NewCA("a"), "token1."+marked))
	for name, text := range map[string]string{filepath.Join(root,
		"etc/node-cert-agent/bootstrap.d/10.kubeconfig"): kubeconfig,
		filepath.Join(root, "etc/node-cert-agent/config.d/site.yaml"): "apiVersion: " +
			"config.node-cert-agent.io/v1alpha1\nnode: {name: a}\n"} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	agent := buildAgent(t)
	for _, s := range []syscall.Signal{syscall.SIGQUIT, syscall.SIGABRT, syscall.SIGSEGV} {
		t.Run(s.String(), func(t *testing.T) {
			// The shell grants what an administrator may have granted.
			cmd := exec.Command("sh", "-c", `ulimit -c unlimited; exec "$0" run --root "$1"`, agent, root)
			var said bytes.Buffer
			cmd.Dir, cmd.Stdout, cmd.Stderr = work, &said, &said
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = cmd.Process.Kill() }() // it has ended, if all went well
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			status := filepath.Join(root, "run/node-cert-agent/status.json")
			awaitText(t, status, "127.0.0.1:1: connect: connection refused", ended) // it has read the token by then
			_ = cmd.Process.Signal(s)
			<-ended
			if state := cmd.ProcessState.Sys().(syscall.WaitStatus); !state.Signaled() || state.CoreDump() {
				t.Errorf("ended with %v", cmd.ProcessState)
			}
			if left, _ := filepath.Glob(filepath.Join(work, "*")); len(left) > 0 {
				t.Errorf("left are %q", left)
			}
			if !strings.Contains(said.String(), "goroutine") || strings.Contains(said.String(), marked) {
				t.Errorf("it said\n%s", &said)
			}
			_ = os.Remove(status)
		})
	}
}

// awaitText polls until the file holds the text.
func awaitText(t *testing.T, file, text string, ended <-chan error) {
	t.Helper()
	wait.For(t, text+" in "+file, func() bool {
		select {
		case err := <-ended:
			t.Fatalf("it ended: %v", err)
		default:
		}
		b, _ := os.ReadFile(file)
		return strings.Contains(string(b), text)
	})
}
