// SPDX-License-Identifier: Apache-2.0

//go:build real

package packages

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/cluster"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testnode"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/wait"
)

// allowing is a configuration that wants everything that a host may lack.
const allowing = `apiVersion: config.node-cert-agent.io/v1alpha1
files:
  kubeAPIServerServingCAData: {onChange: [reader.service]}
  additionalTrustBundle: {onChange: [node-cert-agent-update-ca-trust.service]}
units:
  reader.service: {verb: reload}
  node-cert-agent-update-ca-trust.service: {verb: restart}
`

var (
	// noCluster is what check finds on every host here, since none has a cluster.
	noCluster = []string{
		"fail  identity: this host has no identity yet\n      fix: put a kubeconfig",
		"warn  service: no identity: no credential",
	}
	// noPaths is what a host lacks that has the RPM, and neither Red Hat's paths nor programs.
	noPaths = []string{
		"warn  directory: /etc/pki/ca-trust/source/anchors: does not exist; for additionalTrustBundle\n      fix: make it, " +
			"or turn off",
		"fail  unit: node-cert-agent-update-ca-trust.service cannot start: there is no /usr/bin/update-ca-trust\n      " +
			"fix: name " +
			"this distribution's: systemctl edit",
	}
)

const (
	byDeb = "dpkg --install node-cert-agent_*.deb"
	byRPM = "rpm --install node-cert-agent-*.rpm"

	noTable = "\n      fix: mount it writable, or turn off what goes there: "
)

// bare is a host with both packages in root's home, on which nothing is installed.
func bare(t *testing.T, files map[string]host.File) *node {
	t.Helper()
	all := rpmTool(t)
	all[cluster.Fragment] = host.File{Data: []byte(allowing)}
	all["/etc/systemd/system/reader.service"] = host.File{Data: []byte("[Service]\nExecStart=/bin/sleep " +
		"infinity\nExecReload=/bin/true\n")}
	maps.Copy(all, files)
	n := &node{testnode.Boot(t, host.Options{Files: all})}
	n.Must(carry(n.Host, built(t, first)))
	return n
}

// chatter is what dpkg, systemd-sysusers and Debian's rpm say of each package, and of one that refuses.
var chatter = regexp.MustCompile(`^(Selecting|\(Reading|Preparing|Unpacking|Setting up|Creating|Processing triggers|rpm.real: RPM should not|rpm.real: However) ` +
	`|^(dpkg: error processing|Errors were encountered| new node-cert-agent package pre-installation script)|^ node-cert-agent_.*[.]deb$`)

// tries installs a package; it returns what was said beyond the usual, and how it ended.
func (n *node) tries(command string) (said []string, end string) {
	n.T.Helper()
	lines := strings.Split(n.says("cd && "+command+" 2>&1; echo exit $?"), "\n")
	n.T.Logf("%s\n%s", command, strings.Join(lines, "\n"))
	said, end = lines[:len(lines)-1], lines[len(lines)-1]
	return slices.DeleteFunc(said, chatter.MatchString), end
}

// installed installs a package that has nothing to say.
func (n *node) installed(command string) {
	n.T.Helper()
	if said, end := n.tries(command); len(said) > 0 || end != "exit 0" {
		n.T.Fatalf("%s ended with %s and said %q", command, end, said)
	}
}

// wantFindings awaits exactly these findings beside those of a host without a cluster, by how they begin.
func (n *node) wantFindings(want ...string) {
	n.T.Helper()
	want = slices.Sorted(slices.Values(append(want, noCluster...)))
	var out string
	have := func() []string {
		out = n.says("node-cert-agent check 2>&1")
		return slices.Sorted(slices.Values(regexp.MustCompile(`(?m)^(?:warn|fail) .*$(?:\n      fix: .*$)?`).FindAllString(out, -1)))
	}
	err := wait.Until(n.Ctx, "what check finds", func() bool { return slices.EqualFunc(have(), want, strings.HasPrefix) })
	if err != nil {
		n.T.Errorf("%v; check says\n%s\nwant these not to be ok\n%s", err, out, strings.Join(want, "\n"))
		return
	}
	// No host here has SELinux.
	if !strings.Contains(out, "\nok    SELinux: off: files have no labels\n") {
		n.T.Errorf("check says nothing of SELinux:\n%s", out)
	}
}

// running starts the service, which is to be ready whatever the host lacks.
func (n *node) running() {
	n.T.Helper()
	n.Run("systemctl", "start", "reader.service", service)
	n.want("systemctl is-active "+service+" node-cert-agent-writer.socket", "active\nactive")
}

func TestAnUnknownDistributionGetsTheSameAndIsToldWhatItLacks(t *testing.T) {
	unheard := map[string]host.File{"/etc/os-release": {Data: []byte("NAME=Unheard\nID=unheard\nVERSION_ID=1\n")}}
	t.Run("deb", func(t *testing.T) {
		n := bare(t, unheard)
		n.installed(byDeb)
		n.running()
		n.wantFindings()
	})
	// With Red Hat's paths and programs, of which this host has none.
	t.Run("rpm", func(t *testing.T) {
		n := bare(t, unheard)
		n.installed(byRPM)
		n.running()
		n.wantFindings(noPaths...)
	})
}

func TestWithoutPolkitItInstallsAndUnitsAreActedOn(t *testing.T) {
	for sentence, without := range map[string]string{
		"not installed": "dpkg --purge --force-depends polkitd && rm -rf /etc/polkit-1 /usr/share/polkit-1 && systemctl " +
			"daemon-reload",
		"masked": "systemctl mask --now polkit.service",
	} {
		t.Run(sentence, func(t *testing.T) {
			n := bare(t, nil)
			n.Run("sh", "-c", without)
			n.installed(byDeb)
			n.running()
			n.Must(n.Host.PutFile(cluster.Fragment, host.File{Data: []byte(site)}))
			n.wantFindings()
		})
	}
}

// readOnly mounts the host's /etc read-only.
func (n *node) readOnly() {
	n.T.Helper()
	n.Run("sh", "-ec", "mount --bind /etc /etc; mount -o remount,bind,ro /etc; ! touch /etc/x 2>/dev/null")
}

func TestAReadOnlyEtcIsRefusedOrSaidInOneSentence(t *testing.T) {
	t.Run("deb", func(t *testing.T) {
		n := bare(t, nil)
		n.readOnly()
		said, end := n.tries(byDeb)
		want := "node-cert-agent: not installed, since /etc is read-only and has no user node-cert-agent yet: mount it " +
			"writable for the installation, or put the package into the image"
		if !slices.Equal(said, []string{want}) || end != "exit 1" {
			t.Errorf("it ended with %s and said %q", end, said)
		}
		n.want("find / -xdev -name '*node-cert-agent*' -not -path '/root/*' -not -path '/etc/*'", "")
		n.want("dpkg --audit", "")
		n.Run("mount", "-o", "remount,bind,rw", "/etc")
		n.installed(byDeb)
		n.running()
		n.wantFindings()
	})
	t.Run("rpm", func(t *testing.T) {
		n := bare(t, nil)
		n.readOnly()
		said, end := n.tries(byRPM)
		want := "node-cert-agent: it cannot start, since its user could not be made: mount /etc writable and run " +
			"systemd-sysusers node-cert-agent.conf, then systemd-tmpfiles --create node-cert-agent.conf"
		if !slices.Equal(said, []string{want}) || end != "exit 0" {
			t.Errorf("it ended with %s and said %q", end, said)
		}
		out := n.says("node-cert-agent check 2>&1")
		for _, line := range []string{
			"fail  user: there is no user node-cert-agent, as which the service runs: it cannot start\n      fix: " +
				"systemd-sysusers " +
				"node-cert-agent.conf && systemd-tmpfiles --create node-cert-agent.conf",
			"warn  directory: /etc/node-cert-agent/bootstrap.d: does not exist; for bootstrap files\n      fix: " +
				"systemd-tmpfiles " +
				"--create node-cert-agent.conf",
			"ok    SELinux: off: files have no labels",
		} {
			if !strings.Contains(out, line+"\n") {
				t.Errorf("check does not say %q:\n%s", line, out)
			}
		}
		// As it was told.
		n.Run("sh", "-ec", "mount -o remount,bind,rw /etc; systemd-sysusers node-cert-agent.conf; systemd-tmpfiles --create "+
			"node-cert-agent.conf")
		n.running()
		n.wantFindings(noPaths...)
	})
}

// TestOnAReadOnlyEtcThatHasTheUserItRunsAndCheckSaysWhatItCannotWrite is what an image that is read-only gives.
func TestOnAReadOnlyEtcThatHasTheUserItRunsAndCheckSaysWhatItCannotWrite(t *testing.T) {
	for _, command := range []string{byDeb, byRPM} {
		t.Run(strings.Fields(command)[0], func(t *testing.T) {
			n := bare(t, map[string]host.File{"/etc/kubernetes/x": {}, "/etc/docker/certs.d/x/ca.crt": {}})
			n.Run("sh", "-c", "echo 'u node-cert-agent - - /' | systemd-sysusers -")
			n.readOnly()
			said, end := n.tries(command)
			want := "node-cert-agent: some of its directories could not be made: node-cert-agent check says which"
			if !slices.Equal(said, []string{want}) || end != "exit 0" {
				t.Errorf("it ended with %s and said %q", end, said)
			}
			n.running()
			findings := []string{
				"fail  directory: /etc/kubernetes: its file system is mounted read-only; for kubeAPIServerServingCAData, rootCAData" + noTable,
				"warn  directory: /etc/kubernetes/static-pod-resources/configmaps/cloud-config: does not exist; for " +
					"cloudProviderCAData",
				"fail  directory: /etc/docker/certs.d: its file system is mounted read-only; for imageRegistryBundleData, " +
					"imageRegistryBundleUserData" + noTable,
				"warn  directory: /etc/node-cert-agent/bootstrap.d: does not exist; for bootstrap files\n      fix: " +
					"systemd-tmpfiles",
			}
			if command == byRPM {
				findings = append(findings, noPaths...)
			}
			n.wantFindings(findings...)
		})
	}
}

// TestAnOldSystemdIsRefusedByTheDependency has packages that say that they are another version: no distribution
// that is at hand has one so old.
func TestAnOldSystemdIsRefusedByTheDependency(t *testing.T) {
	t.Run("deb", func(t *testing.T) {
		n := bare(t, nil)
		n.Run("sed", "-i", `/^Package: systemd$/,/^$/s/^Version: .*/Version: 239-1/`, "/var/lib/dpkg/status")
		out := n.says("cd && " + byDeb + " 2>&1; echo exit $?")
		if !strings.Contains(out, "node-cert-agent depends on systemd (>= 247); however:\n  Version of systemd on system is "+
			"239-1.\n") || !strings.HasSuffix(out, "\nexit 1") {
			t.Errorf("dpkg says\n%s", out)
		}
		n.want("systemctl is-enabled "+service+"; systemctl is-active "+service+"; ls -d "+stateDir+
			" 2>&1 >/dev/null | wc -l", "disabled\ninactive\n1")
	})
	for version, refused := range map[string]string{"238": "\tsystemd >= 239 is needed by node-cert-agent-" + oldVersion +
		"-1." + rpmArch(runtime.GOARCH) + "\n", "239": ""} {
		t.Run("rpm, "+version, func(t *testing.T) {
			root := scratch(t)
			rpm := func(args ...string) (string, error) {
				return tool("", "rpm", append([]string{"--root", root, "--dbpath", "/var/lib/rpm", "--install"}, args...)...)
			}
			if _, err := rpm("--nodeps", "--justdb", standInRPM(t, version)); err != nil {
				t.Fatal(err)
			}
			out, err := rpm(rpmOf(t, first, "node-cert-agent", oldVersion))
			if refused == "" && err != nil || refused != "" && (err == nil || !strings.Contains(err.Error(), refused)) {
				t.Errorf("rpm says %s%v, want %q", out, err, refused)
			}
		})
	}
}

// standInRPM is a package without files that says it is a systemd of this version, and a bus and a shell.
func standInRPM(t *testing.T, version string) string {
	t.Helper()
	dir := t.TempDir()
	spec := fmt.Sprintf("Name: systemd\nVersion: %s\nRelease: 1\nSummary: x\nLicense: x\nBuildArch: noarch\nProvides: "+
		"dbus, /bin/sh\n%%description\nx\n%%files\n", version)
	if err := os.WriteFile(filepath.Join(dir, "x.spec"), []byte(spec), 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, "rpmbuild", "-bb", "--define", "_topdir "+dir, filepath.Join(dir, "x.spec"))
	return filepath.Join(dir, "RPMS/noarch", "systemd-"+version+"-1.noarch.rpm")
}
