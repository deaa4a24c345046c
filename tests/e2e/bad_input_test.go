// SPDX-License-Identifier: Apache-2.0

//go:build real

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/cluster"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane/controllerconfig"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

func TestInvalidConfigurationAtTheStartExitsWith2AndChangesNothing(t *testing.T) {
	n := start(t, cluster.Options{Config: "apiVersion: config.node-cert-agent.io/v1alpha1\nfiles:\n  rootCAData: {fiel: " +
		"/etc/kubernetes/ca.crt}\n"})
	n.create(kubeletCA(testpki.NewCA("a")))
	_, _ = n.Host.Run(n.ctx, "systemctl", "start", "node-cert-agent.service")
	if code := n.run("systemctl", "show", "-P", "ExecMainStatus", "node-cert-agent.service"); code != "2" {
		t.Errorf("the agent exited with %s, want 2", code)
	}
	n.await("an end without restarts", func() bool {
		return n.run("systemctl", "show", "-P", "ActiveState", "node-cert-agent.service") == "failed"
	})
	n.wantFile(cluster.KubeletCA, nil)
	journal := n.journal("-u", "node-cert-agent", "-o", "cat")
	if want := cluster.Fragment + ":3: files.rootCAData.fiel: "; !strings.Contains(journal, want) {
		t.Errorf("the journal lacks %q:\n%s", want, journal)
	}
}

func TestAFragmentThatBreaksWhileRunningKeepsTheLastSettings(t *testing.T) {
	n, _ := started(t, cluster.Options{})
	n.must(n.Host.PutFile(cluster.Fragment,
		host.File{Data: []byte("apiVersion: config.node-cert-agent.io/v1alpha1\nfiles: [\n")}))
	n.awaitRecord(audit.ConfigRejected)
	b := testpki.NewCA("b")
	n.awaitVersion(n.patch(kubeletCA(b)))
	n.wantFile(cluster.KubeletCA, b)

	moved := strings.Replace(cluster.Config, "onChange: [reader.service]", "path: /etc/kubernetes/moved.crt", 1)
	n.must(n.Host.PutFile(cluster.Fragment, host.File{Data: []byte(moved)}))
	n.awaitFile("/etc/kubernetes/moved.crt", b)
	n.wantFile(cluster.KubeletCA, b) // what lies at the old place is the administrator's now
}

func TestWhatStandsInTheWayIsRefusedAndNotReplaced(t *testing.T) {
	n, a := started(t, cluster.Options{})
	n.run("systemctl", "stop", "node-cert-agent.service")
	n.run("sh", "-c", "rm "+cluster.KubeletCA+" && ln -s /etc/hostname "+cluster.KubeletCA+
		" && rm /etc/kubernetes/ca.crt && mkdir /etc/kubernetes/ca.crt")
	n.run("sh", "-c", "mkdir -p /etc/docker/certs.d/fifo && mkfifo /etc/docker/certs.d/fifo/ca.crt && ln -s "+
		"/etc/kubernetes /etc/docker/certs.d/link")
	n.run("systemctl", "start", "node-cert-agent.service")
	v := n.patch(controllerconfig.Spec{KubeAPIServerServingCAData: testpki.NewCA("b"), RootCAData: a,
		ImageRegistryBundleData: []controllerconfig.Registry{{File: "fifo", Data: a}, {File: "link", Data: a},
			{File: "good", Data: a}}})
	s := n.awaitVersion(v)
	n.awaitFile(certsD("good"), a)
	if len(s.Refused) != 4 {
		t.Errorf("refused is %v, want the link, the directory, the fifo and the linked directory", s.Refused)
	}
	if out := n.run("sh", "-c", "readlink "+cluster.KubeletCA+"; stat -c %F /etc/kubernetes/ca.crt "+certsD("fifo")+
		"; ls /etc/kubernetes/ca.crt"); out != "/etc/hostname\ndirectory\nfifo" {
		t.Errorf("what stood in the way became\n%s", out)
	}
	if _, err := n.Host.Run(n.ctx, "test", "-e", "/etc/kubernetes/link"); err == nil {
		t.Error("a linked directory led elsewhere")
	}
}

func TestAFileSystemThatIsReadOnlyIsAStateAndHeals(t *testing.T) {
	n, a := started(t, cluster.Options{})
	n.run("sh", "-c", "mount --bind /etc/kubernetes /etc/kubernetes && mount -o remount,bind,ro /etc/kubernetes")
	n.run("systemctl", "stop", "node-cert-agent-writer.service") // the next one sees the mount, whoever wakes it
	b := testpki.NewCA("b")
	n.patch(controllerconfig.Spec{KubeAPIServerServingCAData: b,
		ImageRegistryBundleData: []controllerconfig.Registry{{File: "r", Data: b}}})
	n.await("a reason", func() bool { return strings.Contains(n.status().Error, "read-only") })
	n.awaitFile(certsD("r"), b) // the others go on
	n.wantFile(cluster.KubeletCA, a)
	n.run("umount", "/etc/kubernetes")
	n.awaitFile(cluster.KubeletCA, b)
	n.await("no trouble", func() bool { return n.status().Error == "" })
}

func TestAWriterThatDoesNotRunIsAStateAndHeals(t *testing.T) {
	n, a := started(t, cluster.Options{})
	n.run("systemctl", "stop", "node-cert-agent-writer.socket", "node-cert-agent-writer.service")
	b := testpki.NewCA("b")
	n.patch(kubeletCA(b))
	n.await("a reason", func() bool { return strings.Contains(n.status().Error, "node-cert-agent-writer.sock") })
	n.wantFile(cluster.KubeletCA, a)
	n.run("systemctl", "start", "node-cert-agent-writer.socket")
	n.awaitFile(cluster.KubeletCA, b)
}

func TestADirectoryReplacedBehindTheWriterIsFoundAgain(t *testing.T) {
	n, _ := started(t, cluster.Options{})
	n.run("sh", "-c", "mv /etc/docker/certs.d /etc/docker/old && mkdir /etc/docker/certs.d")
	b := testpki.NewCA("b")
	n.patch(controllerconfig.Spec{ImageRegistryBundleData: []controllerconfig.Registry{{File: "r", Data: b}}})
	n.awaitFile(certsD("r"), b)
}

func TestAFullDiskIsAStateAndHeals(t *testing.T) {
	n, a := started(t, cluster.Options{})
	n.run("sh", "-c", "cp -a /etc/kubernetes /etc/copy && mount -t tmpfs -o size=64k,mode=755 tmpfs /etc/kubernetes && "+
		"cp -a /etc/copy/. /etc/kubernetes")
	n.run("sh", "-c", "dd if=/dev/zero of=/etc/kubernetes/ballast bs=4k 2>/dev/null || true")
	n.run("systemctl", "stop", "node-cert-agent-writer.service") // the next one sees the mount, whoever wakes it
	b := testpki.NewCA("b")
	n.patch(controllerconfig.Spec{KubeAPIServerServingCAData: b,
		ImageRegistryBundleData: []controllerconfig.Registry{{File: "r", Data: b}}})
	n.await("a reason", func() bool { return strings.Contains(n.status().Error, "no space left on device") })
	n.awaitFile(certsD("r"), b)
	n.wantFile(cluster.KubeletCA, a)
	n.run("rm", "/etc/kubernetes/ballast")
	n.awaitFile(cluster.KubeletCA, b)
	n.await("no trouble", func() bool { return n.status().Error == "" })
	if left := n.run("ls", "-A", "/etc/kubernetes"); strings.Contains(left, ".kubelet-ca.crt") {
		t.Errorf("something half written was left: %s", left)
	}
}

func TestAStrangerIsRefusedByTheWriterEvenInTheRightGroup(t *testing.T) {
	n, _ := started(t, cluster.Options{})
	peer := filepath.Join(t.TempDir(), "peer")
	cmd := exec.CommandContext(n.ctx, "go", "build", "-o", peer, "./testdata/peer")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	data, err := os.ReadFile(peer)
	n.must(err)
	n.must(n.Host.PutFile("/usr/bin/peer", host.File{Data: data, Mode: 0o755}))
	n.run("useradd", "--groups", "node-cert-agent", "mallory")

	said, err := n.Host.RunAs(n.ctx, "mallory", "/usr/bin/peer", "/run/node-cert-agent-writer.sock")
	if err != nil || !strings.HasPrefix(said, "0 bytes") {
		t.Errorf("a stranger was answered: %q, %v", said, err)
	}
	journal := n.journal("-u", "node-cert-agent-writer", "-o", "cat", "-p", "warning")
	if !strings.Contains(journal, "uid="+n.run("id", "-u", "mallory")) {
		t.Errorf("the refusal is not on record:\n%s", journal)
	}
	if said := n.run("/usr/bin/peer", "/run/node-cert-agent-writer.sock"); strings.HasPrefix(said, "0 bytes") {
		t.Errorf("root was not answered: %q", said)
	}
}
