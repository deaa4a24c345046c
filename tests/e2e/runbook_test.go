// SPDX-License-Identifier: Apache-2.0

//go:build real

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/cluster"
	book "github.com/node-cert-agent/node-cert-agent/tests/harness/runbook"
)

// runbook is a page of docs/usage whose blocks are run as an administrator of the cluster would.
type runbook struct {
	*node
	book.Page
	name, dir string
	env       []string
}

// runbook reads a page. Its commands find kubectl and the plugin in the PATH.
func (n *node) runbook(page string) *runbook {
	n.T.Helper()
	r := &runbook{node: n, Page: book.Read(n.T, filepath.Join("../../docs/usage", page)), name: page, dir: n.T.TempDir()}
	n.Must(cluster.Build(n.Ctx, filepath.Join(r.dir, "bin", "kubectl-node_certs")))
	n.Must(os.Symlink(n.Plane.KubectlPath(), filepath.Join(r.dir, "bin", "kubectl")))
	r.env = append(os.Environ(), "KUBECONFIG="+filepath.Join(n.Plane.Dir(), "admin.kubeconfig"),
		"PATH="+filepath.Join(r.dir, "bin")+":"+os.Getenv("PATH"))
	return r
}

// run runs a block below a heading, which shall end with that code and print what is wanted.
func (r *runbook) run(code int, want, heading string, block int) {
	r.T.Helper()
	cmd := exec.CommandContext(r.Ctx, "sh", "-euc", r.Block(heading, block))
	timeout := map[int]string{0: "TIMEOUT=5m", 1: "TIMEOUT=15s"}[code] // by then who is on has reported
	cmd.Dir, cmd.Env = r.dir, append(r.env, timeout)
	out, _ := cmd.CombinedOutput() // the exit code says it
	if got := cmd.ProcessState.ExitCode(); got != code || !strings.Contains(string(out), want) {
		r.T.Fatalf("%s, %s, block %d: exit code %d\n%s", r.name, heading, block, got, out)
	}
}

// kubectl runs a command that no page has, which shall print what is wanted.
func (r *runbook) kubectl(want string, args ...string) {
	r.T.Helper()
	cmd := exec.CommandContext(r.Ctx, filepath.Join(r.dir, "bin", "kubectl"), args...)
	cmd.Env = r.env
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
		r.T.Fatalf("kubectl %v: %v\n%s", args, err, out)
	}
}

// host runs a block on the node, as root.
func (r *runbook) host(want, heading string, block int) {
	r.T.Helper()
	if out := r.Run("sh", "-euc", "cd /root\n"+r.Block(heading, block)); !strings.Contains(out, want) {
		r.T.Fatalf("%s, %s, block %d:\n%s", r.name, heading, block, out)
	}
}
