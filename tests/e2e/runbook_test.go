// SPDX-License-Identifier: Apache-2.0

//go:build real

package e2e

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/cluster"
)

// runbook is a page of docs/usage whose blocks are run as an administrator of the cluster would.
type runbook struct {
	*node
	page, dir string
	blocks    map[string][]string // by heading
	env       []string
}

// runbook reads a page. Its commands find kubectl and the plugin in the PATH.
func (n *node) runbook(page string) *runbook {
	n.T.Helper()
	text, err := os.ReadFile(filepath.Join("../../docs/usage", page))
	n.Must(err)
	r := &runbook{node: n, page: page, dir: n.T.TempDir(), blocks: make(map[string][]string)}
	heading := ""
	for _, m := range regexp.MustCompile("(?ms)^## ([^\n]*)$|^```sh\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		if heading = cmp.Or(m[1], heading); m[2] != "" {
			r.blocks[heading] = append(r.blocks[heading], m[2])
		}
	}
	n.Must(cluster.Build(n.Ctx, filepath.Join(r.dir, "bin", "kubectl-node_certs")))
	n.Must(os.Symlink(n.Plane.KubectlPath(), filepath.Join(r.dir, "bin", "kubectl")))
	r.env = append(os.Environ(), "KUBECONFIG="+filepath.Join(n.Plane.Dir(), "admin.kubeconfig"),
		"PATH="+filepath.Join(r.dir, "bin")+":"+os.Getenv("PATH"))
	return r
}

// run runs a block below a heading, which shall end with that code and print what is wanted.
func (r *runbook) run(code int, want, heading string, block int) {
	r.T.Helper()
	cmd := exec.CommandContext(r.Ctx, "sh", "-euc", r.block(heading, block))
	timeout := map[int]string{0: "TIMEOUT=5m", 1: "TIMEOUT=3s"}[code] // what is to fail waits for nobody
	cmd.Dir, cmd.Env = r.dir, append(r.env, timeout)
	out, _ := cmd.CombinedOutput() // the exit code says it
	if got := cmd.ProcessState.ExitCode(); got != code || !strings.Contains(string(out), want) {
		r.T.Fatalf("%s, %s, block %d: exit code %d\n%s", r.page, heading, block, got, out)
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
	if out := r.Run("sh", "-euc", "cd /root\n"+r.block(heading, block)); !strings.Contains(out, want) {
		r.T.Fatalf("%s, %s, block %d:\n%s", r.page, heading, block, out)
	}
}

// block is one below a heading.
func (r *runbook) block(heading string, block int) string {
	r.T.Helper()
	if block >= len(r.blocks[heading]) {
		r.T.Fatalf("%s has %d blocks below %q", r.page, len(r.blocks[heading]), heading)
	}
	return r.blocks[heading][block]
}
