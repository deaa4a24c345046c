// SPDX-License-Identifier: Apache-2.0

//go:build real

package packages

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
)

// unpacked is what a package holds, as a tree.
func unpacked(t *testing.T, pkg string) string {
	t.Helper()
	to := t.TempDir()
	if strings.HasSuffix(pkg, ".rpm") {
		run(t, "rpm", "--root", to, "--nodeps", "--noscripts", "--install", pkg)
	} else {
		run(t, "dpkg-deb", "--extract", pkg, to)
	}
	return to
}

// TestAPackageHasWhatPeopleAndToolsRead is about what no other test would miss.
func TestAPackageHasWhatPeopleAndToolsRead(t *testing.T) {
	const doc = "usr/share/doc/node-cert-agent/"
	for kind, zsh := range map[string]string{"deb": "usr/share/zsh/vendor-completions/_node-cert-agent",
		"rpm": "usr/share/zsh/site-functions/_node-cert-agent"} {
		t.Run(kind, func(t *testing.T) {
			pkg := rpmOf(t, first, "node-cert-agent", oldVersion)
			licence := "usr/share/licenses/node-cert-agent/LICENSE"
			if kind == "deb" {
				pkg, licence = debOf(t, first, oldVersion), doc+"copyright"
			}
			root := unpacked(t, pkg)
			for file, want := range map[string]string{
				zsh: `(?m)^#compdef node-cert-agent$`,
				"usr/share/fish/vendor_completions.d/node-cert-agent.fish": `complete -c node-cert-agent`,
				"usr/share/bash-completion/completions/node-cert-agent":    `complete .*node-cert-agent`,
				doc + "node-cert-agent.spdx.json":                          `"spdxVersion": *"SPDX-2`,
				doc + "examples/10-example.yaml":                           `apiVersion: config.node-cert-agent.io/v1alpha1`,
				licence:                                                    `Apache`,
			} {
				if text, err := os.ReadFile(filepath.Join(root, file)); err != nil || !regexp.MustCompile(want).Match(text) {
					t.Errorf("%s has no %q: %v", file, want, err)
				}
			}
			run(t, "bash", "-n", filepath.Join(root, "usr/share/bash-completion/completions/node-cert-agent"))
			wantManual(t, root)
		})
	}
}

// wantManual fails if the manual page is none, or misses a command of the program.
func wantManual(t *testing.T, root string) {
	t.Helper()
	f, err := os.Open(filepath.Join(root, "usr/share/man/man8/node-cert-agent.8.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	page, err := io.ReadAll(z)
	if err != nil || !strings.Contains(string(page), "v"+oldVersion) ||
		regexp.MustCompile("(?m)^@COMMANDS@$|@VERSION@").Match(page) {
		t.Errorf("the manual page is not of v%s, or has a placeholder: %v", oldVersion, err)
	}
	help := run(t, filepath.Join(root, "usr/bin/node-cert-agent"), "--help")
	commands := regexp.MustCompile(`(?m)^  ([a-z-]+) +[A-Z]`).FindAllStringSubmatch(help, -1)
	if len(commands) < 10 {
		t.Fatalf("the help lists %q", commands)
	}
	for _, c := range commands {
		if c[1] != "help" && !strings.Contains(strings.ReplaceAll(string(page), `\-`, "-"), c[1]) {
			t.Errorf("the manual page says nothing of the command %s", c[1])
		}
	}
}

func TestAHostWithAPresetOfItsOwnGetsItEnabled(t *testing.T) {
	n := bare(t, map[string]host.File{"/etc/systemd/system-preset/10-site.preset": {Data: []byte("enable node-cert-agent.service\n")}})
	n.installed(byDeb)
	n.want("systemctl is-enabled "+service, "enabled")
	// The next boot starts it; the installation starts nothing.
	n.want("systemctl is-active "+service+" node-cert-agent-writer.socket", "inactive\ninactive")
	n.Must(n.Host.Reboot(n.Ctx))
	n.want("systemctl is-active "+service+" node-cert-agent-writer.socket", "active\nactive")
	// The journal explains its records, and programs can read what check finds.
	started := string(audit.Started.ID)
	if text := n.says("journalctl --dump-catalog " + started); !strings.Contains(text, started) ||
		!strings.Contains(text, "node-cert-agent") {
		t.Errorf("the catalog says %q", text)
	}
	var all struct {
		Findings []struct{ Level, What, Fact string }
	}
	out := n.says("node-cert-agent check -o json")
	if err := json.Unmarshal([]byte(out), &all); err != nil || len(all.Findings) < 15 {
		t.Errorf("check -o json: %v\n%s", err, out)
	}
	for _, f := range all.Findings {
		if f.What == "SELinux" && (f.Level != "ok" || f.Fact != "off: files have no labels") {
			t.Errorf("of SELinux it says %+v", f)
		}
	}
}

func TestTheApproversPackageComesAndGoesByItself(t *testing.T) {
	const unit = "node-cert-controller.service"
	n := bare(t, nil)
	data, err := os.ReadFile(strings.Replace(debOf(t, first, oldVersion), "node-cert-agent_", "node-cert-controller_", 1))
	n.Must(err)
	n.Must(n.Host.PutFile("/root/approver.deb", host.File{Data: data}))
	n.Run("dpkg", "--install", "/root/approver.deb")
	n.want("systemctl is-enabled "+unit, "disabled")
	n.want("systemctl is-active "+unit, "inactive")
	n.want("systemctl list-unit-files --no-legend 'node-cert-*' | wc -l", "1")
	n.Run("systemd-analyze", "verify", unit)
	n.Run("systemctl", "enable", unit)
	n.Run("dpkg", "--purge", "node-cert-controller")
	n.want("systemctl list-unit-files --no-legend 'node-cert-*'; ls /etc/systemd/system/multi-user.target.wants | grep "+
		"node-cert", "")
	n.want("find / -xdev -name '*node-cert-controller*'", "")
}
