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
	_, _ = n.Host.Run(n.Ctx, "systemctl", "start", "node-cert-agent.service")
	if code := n.Run("systemctl", "show", "-P", "ExecMainStatus", "node-cert-agent.service"); code != "2" {
		t.Errorf("the agent exited with %s, want 2", code)
	}
	n.Await("an end without restarts", func() bool {
		return n.Run("systemctl", "show", "-P", "ActiveState", "node-cert-agent.service") == "failed"
	})
	n.wantFile(cluster.KubeletCA, nil)
	journal := n.Journal("-u", "node-cert-agent", "-o", "cat")
	if want := cluster.Fragment + ":3: files.rootCAData.fiel: "; !strings.Contains(journal, want) {
		t.Errorf("the journal lacks %q:\n%s", want, journal)
	}
}

func TestAFragmentThatBreaksWhileRunningKeepsTheLastSettings(t *testing.T) {
	n, _ := started(t, cluster.Options{})
	n.Must(n.Host.PutFile(cluster.Fragment,
		host.File{Data: []byte("apiVersion: config.node-cert-agent.io/v1alpha1\nfiles: [\n")}))
	n.AwaitRecord(audit.ConfigRejected)
	b := testpki.NewCA("b")
	n.awaitVersion(n.patch(kubeletCA(b)))
	n.wantFile(cluster.KubeletCA, b)

	moved := strings.Replace(cluster.Config, "onChange: [reader.service]", "path: /etc/kubernetes/moved.crt", 1)
	n.Must(n.Host.PutFile(cluster.Fragment, host.File{Data: []byte(moved)}))
	n.AwaitFile("/etc/kubernetes/moved.crt", b)
	n.wantFile(cluster.KubeletCA, b) // what lies at the old place is the administrator's now
}

func TestWhatStandsInTheWayIsRefusedAndNotReplaced(t *testing.T) {
	n, a := started(t, cluster.Options{})
	n.Run("systemctl", "stop", "node-cert-agent.service")
	n.Run("sh", "-c", "rm "+cluster.KubeletCA+" && ln -s /etc/hostname "+cluster.KubeletCA+
		" && rm /etc/kubernetes/ca.crt && mkdir /etc/kubernetes/ca.crt")
	n.Run("sh", "-c", "mkdir -p /etc/docker/certs.d/fifo && mkfifo /etc/docker/certs.d/fifo/ca.crt && ln -s "+
		"/etc/kubernetes /etc/docker/certs.d/link")
	n.Run("systemctl", "start", "node-cert-agent.service")
	v := n.patch(controllerconfig.Spec{KubeAPIServerServingCAData: testpki.NewCA("b"), RootCAData: a,
		ImageRegistryBundleData: []controllerconfig.Registry{{File: "fifo", Data: a}, {File: "link", Data: a},
			{File: "good", Data: a}}})
	s := n.awaitVersion(v)
	n.AwaitFile(certsD("good"), a)
	if len(s.Refused) != 4 {
		t.Errorf("refused is %v, want the link, the directory, the fifo and the linked directory", s.Refused)
	}
	if out := n.Run("sh", "-c", "readlink "+cluster.KubeletCA+"; stat -c %F /etc/kubernetes/ca.crt "+certsD("fifo")+
		"; ls /etc/kubernetes/ca.crt"); out != "/etc/hostname\ndirectory\nfifo" {
		t.Errorf("what stood in the way became\n%s", out)
	}
	if _, err := n.Host.Run(n.Ctx, "test", "-e", "/etc/kubernetes/link"); err == nil {
		t.Error("a linked directory led elsewhere")
	}
}

func TestAFileSystemThatIsReadOnlyIsAStateAndHeals(t *testing.T) {
	n, a := started(t, cluster.Options{})
	n.Run("sh", "-c", "mount --bind /etc/kubernetes /etc/kubernetes && mount -o remount,bind,ro /etc/kubernetes")
	n.Run("systemctl", "stop", "node-cert-agent-writer.service") // the next one sees the mount, whoever wakes it
	b := testpki.NewCA("b")
	n.patch(controllerconfig.Spec{KubeAPIServerServingCAData: b,
		ImageRegistryBundleData: []controllerconfig.Registry{{File: "r", Data: b}}})
	n.Await("a reason", func() bool { return strings.Contains(n.Status().Error, "read-only") })
	n.AwaitFile(certsD("r"), b) // the others go on
	n.wantFile(cluster.KubeletCA, a)
	n.Run("umount", "/etc/kubernetes")
	n.AwaitFile(cluster.KubeletCA, b)
	n.Await("no trouble", func() bool { return n.Status().Error == "" })
}

func TestAWriterThatDoesNotRunIsAStateAndHeals(t *testing.T) {
	n, a := started(t, cluster.Options{})
	n.Run("systemctl", "stop", "node-cert-agent-writer.socket", "node-cert-agent-writer.service")
	b := testpki.NewCA("b")
	n.patch(kubeletCA(b))
	n.Await("a reason", func() bool { return strings.Contains(n.Status().Error, "node-cert-agent-writer.sock") })
	n.wantFile(cluster.KubeletCA, a)
	n.Run("systemctl", "start", "node-cert-agent-writer.socket")
	n.AwaitFile(cluster.KubeletCA, b)
}

func TestADirectoryReplacedBehindTheWriterIsFoundAgain(t *testing.T) {
	n, _ := started(t, cluster.Options{})
	n.Run("sh", "-c", "mv /etc/docker/certs.d /etc/docker/old && mkdir /etc/docker/certs.d")
	b := testpki.NewCA("b")
	n.patch(controllerconfig.Spec{ImageRegistryBundleData: []controllerconfig.Registry{{File: "r", Data: b}}})
	n.AwaitFile(certsD("r"), b)
}

func TestAFullDiskIsAStateAndHeals(t *testing.T) {
	n, a := started(t, cluster.Options{})
	n.Run("sh", "-c", "cp -a /etc/kubernetes /etc/copy && mount -t tmpfs -o size=64k,mode=755 tmpfs /etc/kubernetes && "+
		"cp -a /etc/copy/. /etc/kubernetes")
	n.Run("sh", "-c", "dd if=/dev/zero of=/etc/kubernetes/ballast bs=4k 2>/dev/null || true")
	n.Run("systemctl", "stop", "node-cert-agent-writer.service") // the next one sees the mount, whoever wakes it
	b := testpki.NewCA("b")
	n.patch(controllerconfig.Spec{KubeAPIServerServingCAData: b,
		ImageRegistryBundleData: []controllerconfig.Registry{{File: "r", Data: b}}})
	n.Await("a reason", func() bool { return strings.Contains(n.Status().Error, "no space left on device") })
	n.AwaitFile(certsD("r"), b)
	n.wantFile(cluster.KubeletCA, a)
	n.Run("rm", "/etc/kubernetes/ballast")
	n.AwaitFile(cluster.KubeletCA, b)
	n.Await("no trouble", func() bool { return n.Status().Error == "" })
	if left := n.Run("ls", "-A", "/etc/kubernetes"); strings.Contains(left, ".kubelet-ca.crt") {
		t.Errorf("something half written was left: %s", left)
	}
}

func TestAStrangerIsRefusedByTheWriterEvenInTheRightGroup(t *testing.T) {
	n, _ := started(t, cluster.Options{})
	peer := filepath.Join(t.TempDir(), "peer")
	cmd := exec.CommandContext(n.Ctx, "go", "build", "-o", peer, "./testdata/peer")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	data, err := os.ReadFile(peer)
	n.Must(err)
	n.Must(n.Host.PutFile("/usr/bin/peer", host.File{Data: data, Mode: 0o755}))
	n.Run("useradd", "--groups", "node-cert-agent", "mallory")

	said, err := n.Host.RunAs(n.Ctx, "mallory", "/usr/bin/peer", "/run/node-cert-agent-writer.sock")
	if err != nil || !strings.HasPrefix(said, "0 bytes") {
		t.Errorf("another user was answered: %q, %v", said, err)
	}
	journal := n.Journal("-u", "node-cert-agent-writer", "-o", "cat", "-p", "warning")
	if !strings.Contains(journal, "uid="+n.Run("id", "-u", "mallory")) {
		t.Errorf("the refusal is not on record:\n%s", journal)
	}
	if said := n.Run("/usr/bin/peer", "/run/node-cert-agent-writer.sock"); strings.HasPrefix(said, "0 bytes") {
		t.Errorf("root was not answered: %q", said)
	}
}
