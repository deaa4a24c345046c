// SPDX-License-Identifier: Apache-2.0

//go:build vm

package vm

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
)

// Emulated, and with others on the machine, a boot takes a while.
const (
	bootLimit    = 5 * time.Minute
	commandLimit = 3 * time.Minute
)

const service = "node-cert-agent.service"

func TestMain(m *testing.M) {
	if err := fit(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// guest is a machine that is up, in a test.
type guest struct {
	*machine
	t        *testing.T
	versions versions
}

// also gives it the versions that are on its disk.
func (g *guest) also(v versions) *guest {
	g.versions = v
	return g
}

// disk is a new disk for machines of a test.
func disk(t *testing.T, files ...map[string]host.File) image {
	t.Helper()
	all := maps.Clone(shell)
	for _, f := range files {
		maps.Copy(all, f)
	}
	i, err := newImage(t.Context(), t.TempDir(), all)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// boot turns a machine on and waits until it is up.
func boot(t *testing.T, i image, parameters string) *guest {
	t.Helper()
	m, err := i.start(parameters)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.cut() })
	ctx, cancel := context.WithTimeout(t.Context(), bootLimit)
	defer cancel()
	begin := time.Now()
	if err := m.up(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("up after %.1f s", time.Since(begin).Seconds())
	return &guest{machine: m, t: t}
}

// says runs a script in the guest.
func (g *guest) says(script string) (said string, status int) {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), commandLimit)
	defer cancel()
	said, status, err := g.run(ctx, script)
	if err != nil {
		g.t.Fatal(err)
	}
	return strings.TrimSpace(said), status
}

// must is says for a script that has to succeed.
func (g *guest) must(script string) string {
	g.t.Helper()
	said, status := g.says(script)
	if status != 0 {
		g.t.Fatalf("%s: status %d\n%s", script, status, said)
	}
	return said
}

func (g *guest) want(script, want string) {
	g.t.Helper()
	if said, _ := g.says(script); said != want {
		g.t.Errorf("%s: said %q, want %q", script, said, want)
	}
}

// powerOff ends the machine in order.
func (g *guest) powerOff() {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), bootLimit)
	defer cancel()
	if err := g.send("systemctl poweroff"); err != nil {
		g.t.Fatal(err)
	}
	if err := g.off(ctx); err != nil {
		g.t.Fatal(err)
	}
}

// debPath is where the guests have the package.
const debPath = "/root/node-cert-agent.deb"

// pack makes the package in a copy of the sources.
func pack(t *testing.T) host.File {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command("sh", "-ec", `cd "$(git rev-parse --show-toplevel)"
git ls-files -z --cached --others --exclude-standard --deduplicate | xargs -0 sh -c 'for f; do [ ! -e "$f" ] || cp --parents "$f" "$0"; done' "$1"
cd "$1"
make deb ARCHES=amd64 VERSION=v0.1.0 SOURCE_DATE_EPOCH=1790000000`, "sh", dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("making the package: %v\n%s", err, out)
	}
	deb, err := os.ReadFile(filepath.Join(dir, "dist/node-cert-agent_0.1.0-1_amd64.deb"))
	if err != nil {
		t.Fatal(err)
	}
	return host.File{Data: deb}
}
