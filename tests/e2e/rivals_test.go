// SPDX-License-Identifier: Apache-2.0

//go:build real

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
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

const (
	spec   = "/run/rivals/spec.json" // what the machine config daemon reads
	source = "/run/rivals/serviceca" // what the node-ca daemon mirrors
)

// rivals is the configuration beside both daemons of OpenShift.
var rivals = strings.Replace(cluster.Config, "files:\n",
	"coexist: [machine-config-daemon, node-ca]\nfiles:\n  rootCAData: {enabled: false}\n", 1)

// installRivals brings the program that plays the two daemons.
func installRivals(t *testing.T) host.File {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "rivals")
	cmd := exec.Command("go", "build", "-o", binary, "../cmd/rivals")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	b, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	return host.File{Data: b, Mode: 0o755}
}

// publishToRivals tells both daemons what the ControllerConfig and the ConfigMap hold now.
func (n *node) publishToRivals(s controllerconfig.Spec) {
	n.T.Helper()
	b, err := json.Marshal(s)
	n.Must(err)
	n.Must(n.Host.PutFile(spec, host.File{Data: b}))
	for _, r := range s.ImageRegistryBundleData {
		n.Must(n.Host.PutFile(filepath.Join(source, r.File), host.File{Data: r.Data}))
	}
}

// beside is a host on which the agent has the daemons of OpenShift for company.
type beside struct {
	*node
	object controllerconfig.Spec
}

func startBeside(t *testing.T) (n *beside, a []byte) {
	n = &beside{node: start(t, cluster.Options{Config: rivals,
		Host: host.Options{Files: map[string]host.File{"/usr/local/bin/rivals": installRivals(t)}}})}
	n.Run("mkdir", "-p", "/etc/kubernetes/static-pod-resources/configmaps/cloud-config", source)
	a = testpki.NewCA("a")
	cut := bytes.TrimSuffix(a, []byte("\n")) // as keys of ConfigMaps often end
	n.object = controllerconfig.Spec{KubeAPIServerServingCAData: cut, CloudProviderCAData: a,
		ImageRegistryBundleData: []controllerconfig.Registry{
			{File: "image-registry.svc..5000", Data: cut}, {File: "plain.example", Data: a}}}
	n.publishToRivals(n.object)
	return n, a
}

// rotate publishes new CAs everywhere.
func (n *beside) rotate(name string) {
	n.T.Helper()
	ca := testpki.NewCA(name)
	n.object.KubeAPIServerServingCAData = ca
	n.object.ImageRegistryBundleData[0].Data = bytes.TrimSuffix(ca, []byte("\n"))
	n.publishToRivals(n.object)
	n.awaitVersion(n.patch(n.object))
}

// settled waits until the files hold what is published and the agent is content.
func (n *beside) settled() {
	n.T.Helper()
	n.AwaitFile(cluster.KubeletCA, n.object.KubeAPIServerServingCAData)
	n.AwaitFile(certsD("image-registry.svc:5000"), n.object.ImageRegistryBundleData[0].Data)
	n.AwaitFile(certsD("plain.example"), n.object.ImageRegistryBundleData[1].Data)
	n.Await("every file in place", func() bool {
		s := n.Status()
		for _, f := range s.Files {
			if f.State != "in place" {
				return false
			}
		}
		return s.Error == "" && len(s.Files) == 4
	})
	if got := n.Records(audit.Removed) + n.Records(audit.Conflict); got != 0 {
		n.T.Errorf("%d records of removals and conflicts", got)
	}
}

func (n *beside) machineConfigDaemon(syncs string) {
	n.T.Helper()
	n.Run("/usr/local/bin/rivals", "machine-config-daemon", spec, syncs)
}

func (n *beside) nodeCA() {
	n.T.Helper()
	n.Run("systemd-run", "--unit=node-ca", "--collect", "/usr/local/bin/rivals", "node-ca", source, "50ms")
}

func TestTheMachineConfigDaemonWritesBesideUs(t *testing.T) {
	n, a := startBeside(t)
	n.create(n.object)
	n.Must(n.StartAgent(n.Ctx))
	n.AwaitFile(cluster.KubeletCA, append(bytes.Clone(n.object.KubeAPIServerServingCAData), '\n'))
	n.Run("chmod", "0600", cluster.KubeletCA) // the mode of an upgraded node, which all keep
	for i := range 20 {
		if i%4 == 3 {
			n.rotate(fmt.Sprint("rotated-", i))
		}
		v, err := n.Store.Annotate(n.Ctx, "example.org/version", fmt.Sprint(i))
		n.Must(err)
		n.machineConfigDaemon("5") // fails where an operation of the original would
		n.awaitVersion(v)
	}
	n.settled()
	if mode := n.Run("stat", "-c", "%a", cluster.KubeletCA); mode != "600" {
		t.Errorf("the mode became %s", mode)
	}
	// Without company the agent would have written each of the files a hundred times.
	if writes := n.Status().Writes; writes > 60 {
		t.Errorf("the agent wrote %d files", writes)
	}

	// The directory is replaced under the writer's mount: it ends, and the next one sees the new one.
	n.Run("sh", "-c", "rm -rf /etc/docker/certs.d && mkdir /etc/docker/certs.d")
	n.AwaitFile(certsD("plain.example"), a)
	n.settled()
}

func TestTheNodeCADaemonWritesBesideUs(t *testing.T) {
	n, _ := startBeside(t)
	theirs := testpki.NewCA("theirs")
	n.Must(n.Host.PutFile(source+"/theirs.example..5000", host.File{Data: theirs})) // in its ConfigMap alone
	n.nodeCA()
	n.Await("its files", func() bool { return len(n.File(certsD("plain.example"))) > 0 })
	n.create(n.object)
	n.Must(n.StartAgent(n.Ctx))
	for i := range 5 {
		n.rotate(fmt.Sprint("rotated-", i))
	}
	n.settled() // also in the directories that are closed to the writer
	if owner := n.Run("stat", "-c", "%u:%g", "/etc/docker/certs.d/image-registry.svc:5000"); owner != "1001:0" {
		t.Errorf("its directory belongs to %s", owner)
	}
	n.wantFile(certsD("theirs.example:5000"), theirs)
	other := testpki.NewCA("other")
	n.patch(controllerconfig.Spec{ImageRegistryBundleUserData: []controllerconfig.Registry{{File: "ours.example",
		Data: other}, {File: "theirs.example..5000", Data: other}}})
	n.Await("the file that is left to it", func() bool {
		return strings.Contains(n.statusText(), "is left to it")
	})
	n.wantFile(certsD("theirs.example:5000"), theirs)
	if out := n.Run("systemctl", "show", "-P", "ActiveState", "node-ca.service"); out != "active" {
		t.Errorf("the node-ca daemon is %s", out)
	}
	if out := n.Journal("-u", "node-ca.service", "-o", "cat"); strings.Contains(out, "rivals:") {
		t.Errorf("the node-ca daemon says %s", out)
	}
}

func TestBesideBothDaemonsEverythingSettles(t *testing.T) {
	n, _ := startBeside(t)
	n.nodeCA()
	n.create(n.object)
	n.Must(n.StartAgent(n.Ctx))
	for i := range 10 {
		n.rotate(fmt.Sprint("rotated-", i))
		// What it says of the node-ca daemon's files, with which it collides, is between these two.
		_, _ = n.Host.Run(n.Ctx, "/usr/local/bin/rivals", "machine-config-daemon", spec, "5")
	}
	n.settled()
}

// TestWhoKeepsScribblingIsReportedAndAnsweredOnceAMinute: without coexist, and nobody we know.
func TestWhoKeepsScribblingIsReportedAndAnsweredOnceAMinute(t *testing.T) {
	n, a := started(t, cluster.Options{})
	n.Run("systemd-run", "--unit=scribbler", "sh", "-c",
		"while :; do cmp -s "+cluster.KubeletCA+" /run/scribble || { echo scribble > /run/scribble; cat /run/scribble > "+
			cluster.KubeletCA+"; echo x >> /run/scribbles; }; sleep 0.05; done")
	e := n.AwaitRecord(audit.Conflict)
	if e["NODECERT_PATH"] != cluster.KubeletCA || e["NODECERT_FIELD"] != "kubeAPIServerServingCAData" {
		t.Errorf("the record is %v", e)
	}
	n.Await("the conflict in the status", func() bool {
		c := n.Status().Conflicts
		return len(c) == 1 && c[0].Path == cluster.KubeletCA
	})
	if out := n.Run("node-cert-agent", "status"); !strings.Contains(out, "CONFLICT") {
		t.Errorf("status prints\n%s", out)
	}
	n.awaitMetric("node_cert_agent_conflicts 1\n")
	written := n.Records(audit.Written, "NODECERT_FIELD=kubeAPIServerServingCAData")
	n.Run("systemctl", "stop", "scribbler.service")
	n.AwaitFile(cluster.KubeletCA, a) // at the next answer, within a minute
	if more := n.Records(audit.Written, "NODECERT_FIELD=kubeAPIServerServingCAData") - written; more > 2 {
		t.Errorf("%d repairs after the conflict was known", more)
	}
	b := testpki.NewCA("b")
	n.patch(kubeletCA(b)) // what the ControllerConfig asks for anew is written at once all the same
	n.AwaitFile(cluster.KubeletCA, b)
}
