// SPDX-License-Identifier: Apache-2.0

//go:build real

package packages

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
)

func TestTheNativeSpecBuildsTheSamePackages(t *testing.T) {
	top := filepath.Join(workshop, "rpmbuild")
	name := "node-cert-agent-" + oldVersion
	if err := copySources(filepath.Join(top, name)); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(top, "SOURCES"), 0o755); err != nil {
		t.Fatal(err)
	}
	run(t, "tar", "-C", top, "-czf", filepath.Join(top, "SOURCES", name+".tar.gz"), name)
	// Debian knows the tools it needs by other names.
	run(t, "rpmbuild", "-bb", "--nodeps", "--define", "_topdir "+top, "--define", "dist %{nil}",
		filepath.Join(top, name, "rpm/node-cert-agent.spec"))
	for _, p := range []string{"node-cert-agent", "node-cert-controller"} {
		native := files(t, filepath.Join(top, "RPMS", rpmArch(runtime.GOARCH),
			p+"-"+oldVersion+"-1."+rpmArch(runtime.GOARCH)+".rpm"))
		if want := files(t, rpmOf(t, first, p, oldVersion)); !slices.Equal(native, want) {
			t.Errorf("%s: rpmbuild's package holds\n%s\nnfpm's\n%s", p, strings.Join(native, "\n"), strings.Join(want, "\n"))
		}
	}
}

// scratch is a copy of the test hosts' root, without the agent, that rpm works on from outside.
func scratch(t *testing.T) string {
	t.Helper()
	base, err := host.Root(t.Context(), host.Same)
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(t.TempDir(), "root")
	run(t, "cp", "-a", base, root)
	return root
}

func TestAnRPMIsInstalledUpgradedVerifiedAndErased(t *testing.T) {
	root := scratch(t)
	rpm := func(args ...string) string {
		t.Helper()
		return strings.TrimSpace(run(t, "rpm", append([]string{"--root", root, "--dbpath", "/var/lib/rpm", "--nodeps"},
			args...)...))
	}
	is := func(command, want string) {
		t.Helper()
		out, _ := tool(root, "sh", "-c", command)
		if got := strings.TrimSpace(out); got != want {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
	verify := func() {
		t.Helper()
		if out := rpm("--verify", "node-cert-agent"); out != "" {
			t.Errorf("rpm --verify says\n%s", out)
		}
	}
	rpm("--install", rpmOf(t, first, "node-cert-agent", oldVersion))
	verify()
	is("grep -c ^node-cert-agent: etc/passwd etc/group", "etc/passwd:1\netc/group:1")
	is("systemctl --root=$PWD is-enabled node-cert-agent.service", "disabled")
	is("find var etc -name '*node-cert-agent*'", "")
	// Without /proc, as in an image build, systemd-tmpfiles leaves it to the first boot.
	is("systemd-tmpfiles --root=$PWD --create node-cert-agent.conf; stat -c '%a %n' etc/node-cert-agent/*",
		"700 etc/node-cert-agent/bootstrap.d\n755 etc/node-cert-agent/config.d")

	is("mkdir -p etc/kubernetes var/lib/node-cert-agent && for f in etc/kubernetes/ca.crt "+
		"var/lib/node-cert-agent/identity.pem "+
		"etc/node-cert-agent/config.d/50-site.yaml; do echo kept >$f; done", "")
	rpm("--upgrade", rpmOf(t, upgrade, "node-cert-agent", newVersion))
	verify()
	is("chroot . node-cert-agent version | cut -d ' ' -f 2", "v"+newVersion)
	is("cat etc/node-cert-agent/config.d/50-site.yaml", "kept")
	is("systemctl --root=$PWD is-enabled node-cert-agent.service", "disabled")

	is("chmod 0600 usr/bin/node-cert-agent; echo x >>usr/share/node-cert-agent/profiles/standalone.yaml", "")
	if out, err := tool("", "rpm", "--root", root, "--dbpath", "/var/lib/rpm", "--verify",
		"node-cert-agent"); err == nil || strings.Count(out, "\n") < 2 {
		t.Errorf("rpm --verify does not see what was changed: %q, %v", out, err)
	}

	rpm("--erase", "node-cert-agent")
	is("find usr -name '*node-cert-agent*'", "")
	is("cat etc/kubernetes/ca.crt var/lib/node-cert-agent/identity.pem etc/node-cert-agent/config.d/50-site.yaml",
		"kept\nkept\nkept")

	is("mkdir -p etc/systemd/system-preset && echo 'enable node-cert-agent.service' "+
		">etc/systemd/system-preset/10-site.preset", "")
	rpm("--install", rpmOf(t, upgrade, "node-cert-agent", newVersion))
	is("systemctl --root=$PWD is-enabled node-cert-agent.service", "enabled")
}
