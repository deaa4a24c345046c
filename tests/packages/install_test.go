// SPDX-License-Identifier: Apache-2.0

//go:build real

package packages

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/cluster"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane/controllerconfig"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// TestEachWayOfInstallingIsAsWritten runs the shell blocks of docs/usage/install.md, each on a host of its own
// with the package and the token in the working directory, up to the first synced file.
func TestEachWayOfInstallingIsAsWritten(t *testing.T) {
	page, err := os.ReadFile("../../docs/usage/install.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^## ([^\n]*)$[^`]*^```sh\n(.*?)^```$").FindAllStringSubmatch(string(page), -1)
	if len(blocks) != 3 {
		t.Fatalf("found %d blocks", len(blocks))
	}
	dir := built(t, first)
	for _, b := range blocks {
		t.Run(b[1], func(t *testing.T) {
			if n := strings.Count(b[2], "\n"); n > 10 {
				t.Errorf("it takes %d lines, want at most 10", n)
			}
			installAs(t, dir, b[2])
		})
	}
}

func installAs(t *testing.T, dist, commands string) {
	n := install(t, cluster.Options{Bootstrap: true, Config: site, Host: host.Options{Files: rpmTool(t)},
		Install: func(ctx context.Context, h *host.Host) error {
			return carry(h, dist)
		}})
	ca := testpki.NewCA("first")
	_, err := n.Store.Create(n.Ctx, controllerconfig.Spec{KubeAPIServerServingCAData: ca, RootCAData: ca})
	n.Must(err)
	n.Must(n.MakeToken(n.Ctx, "token1"))
	n.Must(n.PutToken("token", "token1"))
	n.Run("sh", "-c", "mv "+cluster.BootstrapDir+"/token.kubeconfig /root/ && rmdir "+cluster.BootstrapDir)
	n.Run("systemctl", "start", cluster.Reader)

	n.Run("sh", "-ec", "cd /root\n"+commands)
	n.awaitFirstSync(ca)
	n.want("systemctl is-enabled "+service, "enabled")
	n.want("ls "+cluster.BootstrapDir, "") // consumed
	n.started(oldVersion)
}

// carry puts this machine's packages of the agent into root's home.
func carry(h *host.Host, dist string) error {
	return filepath.WalkDir(dist, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !regexp.MustCompile(`^node-cert-agent[-_].*(`+machine+`)[.]`).MatchString(d.Name()) {
			return err
		}
		data, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		return h.PutFile("/root/"+d.Name(), host.File{Data: data})
	})
}

// rpmTool is this machine's rpm with what it needs, for hosts that have none. It looks for no dependencies: the
// host's are Debian's packages, of which it knows nothing.
func rpmTool(t *testing.T) map[string]host.File {
	t.Helper()
	const real = "/usr/lib/rpm/rpm.real"
	base, err := host.Root(t.Context(), host.Same)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]host.File{"/usr/bin/rpm": {Data: []byte("#!/bin/sh\nexec " + real + " --nodeps \"$@\"\n"),
		Mode: 0o755}}
	add := func(from, to string) {
		data, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		files[to] = host.File{Data: data, Mode: 0o755}
	}
	add("/usr/bin/rpm", real)
	for _, m := range regexp.MustCompile(`=> (/\S+)`).FindAllStringSubmatch(run(t, "ldd", "/usr/bin/rpm"), -1) {
		if _, err := os.Stat(filepath.Join(base, m[1])); err != nil {
			add(m[1], m[1])
		}
	}
	for _, settings := range []string{"/usr/lib/rpm/rpmrc", "/usr/lib/rpm/macros"} {
		add(settings, settings)
	}
	return files
}
