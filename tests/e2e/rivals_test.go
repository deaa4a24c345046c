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
	n.t.Helper()
	b, err := json.Marshal(s)
	n.must(err)
	n.must(n.Host.PutFile(spec, host.File{Data: b}))
	for _, r := range s.ImageRegistryBundleData {
		n.must(n.Host.PutFile(filepath.Join(source, r.File), host.File{Data: r.Data}))
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
	n.run("mkdir", "-p", "/etc/kubernetes/static-pod-resources/configmaps/cloud-config", source)
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
	n.t.Helper()
	ca := testpki.NewCA(name)
	n.object.KubeAPIServerServingCAData = ca
	n.object.ImageRegistryBundleData[0].Data = bytes.TrimSuffix(ca, []byte("\n"))
	n.publishToRivals(n.object)
	n.awaitVersion(n.patch(n.object))
}

// settled waits until the files hold what is published and the agent is content.
func (n *beside) settled() {
	n.t.Helper()
	n.awaitFile(cluster.KubeletCA, n.object.KubeAPIServerServingCAData)
	n.awaitFile(certsD("image-registry.svc:5000"), n.object.ImageRegistryBundleData[0].Data)
	n.awaitFile(certsD("plain.example"), n.object.ImageRegistryBundleData[1].Data)
	n.await("every file in place", func() bool {
		s := n.status()
		for _, f := range s.Files {
			if f.State != "in place" {
				return false
			}
		}
		return s.Error == "" && len(s.Files) == 4
	})
	if got := n.records(audit.Removed) + n.records(audit.Conflict); got != 0 {
		n.t.Errorf("%d records of removals and conflicts", got)
	}
}

func (n *beside) machineConfigDaemon(syncs string) {
	n.t.Helper()
	n.run("/usr/local/bin/rivals", "machine-config-daemon", spec, syncs)
}

func (n *beside) nodeCA() {
	n.t.Helper()
	n.run("systemd-run", "--unit=node-ca", "--collect", "/usr/local/bin/rivals", "node-ca", source, "50ms")
}

func TestTheMachineConfigDaemonWritesBesideUs(t *testing.T) {
	n, a := startBeside(t)
	n.create(n.object)
	n.must(n.StartAgent(n.ctx))
	n.awaitFile(cluster.KubeletCA, append(bytes.Clone(n.object.KubeAPIServerServingCAData), '\n'))
	n.run("chmod", "0600", cluster.KubeletCA) // the mode of an upgraded node, which all keep
	for i := range 20 {
		if i%4 == 3 {
			n.rotate(fmt.Sprint("rotated-", i))
		}
		v, err := n.Store.Annotate(n.ctx, "example.org/version", fmt.Sprint(i))
		n.must(err)
		n.machineConfigDaemon("5") // fails where an operation of the original would
		n.awaitVersion(v)
	}
	n.settled()
	if mode := n.run("stat", "-c", "%a", cluster.KubeletCA); mode != "600" {
		t.Errorf("the mode became %s", mode)
	}
	// Without company the agent would have written each of the files a hundred times.
	if writes := n.status().Writes; writes > 60 {
		t.Errorf("the agent wrote %d files", writes)
	}

	// The directory is replaced under the writer's mount: it ends, and the next one sees the new one.
	n.run("sh", "-c", "rm -rf /etc/docker/certs.d && mkdir /etc/docker/certs.d")
	n.awaitFile(certsD("plain.example"), a)
	n.settled()
}

func TestTheNodeCADaemonWritesBesideUs(t *testing.T) {
	n, _ := startBeside(t)
	theirs := testpki.NewCA("theirs")
	n.must(n.Host.PutFile(source+"/theirs.example..5000", host.File{Data: theirs})) // in its ConfigMap alone
	n.nodeCA()
	n.await("its files", func() bool { return len(n.file(certsD("plain.example"))) > 0 })
	n.create(n.object)
	n.must(n.StartAgent(n.ctx))
	for i := range 5 {
		n.rotate(fmt.Sprint("rotated-", i))
	}
	n.settled() // also in the directories that are closed to the writer
	if owner := n.run("stat", "-c", "%u:%g", "/etc/docker/certs.d/image-registry.svc:5000"); owner != "1001:0" {
		t.Errorf("its directory belongs to %s", owner)
	}
	n.wantFile(certsD("theirs.example:5000"), theirs)
	other := testpki.NewCA("other")
	n.patch(controllerconfig.Spec{ImageRegistryBundleUserData: []controllerconfig.Registry{{File: "ours.example",
		Data: other}, {File: "theirs.example..5000", Data: other}}})
	n.await("the file that is left to it", func() bool {
		return strings.Contains(n.statusText(), "is left to it")
	})
	n.wantFile(certsD("theirs.example:5000"), theirs)
	if out := n.run("systemctl", "show", "-P", "ActiveState", "node-ca.service"); out != "active" {
		t.Errorf("the node-ca daemon is %s", out)
	}
	if out := n.journal("-u", "node-ca.service", "-o", "cat"); strings.Contains(out, "rivals:") {
		t.Errorf("the node-ca daemon says %s", out)
	}
}

func TestBesideBothDaemonsEverythingSettles(t *testing.T) {
	n, _ := startBeside(t)
	n.nodeCA()
	n.create(n.object)
	n.must(n.StartAgent(n.ctx))
	for i := range 10 {
		n.rotate(fmt.Sprint("rotated-", i))
		// What it says of the node-ca daemon's files, with which it collides, is between these two.
		_, _ = n.Host.Run(n.ctx, "/usr/local/bin/rivals", "machine-config-daemon", spec, "5")
	}
	n.settled()
}

// TestWhoKeepsScribblingIsReportedAndAnsweredOnceAMinute: without coexist, and nobody we know.
func TestWhoKeepsScribblingIsReportedAndAnsweredOnceAMinute(t *testing.T) {
	n, a := started(t, cluster.Options{})
	n.run("systemd-run", "--unit=scribbler", "sh", "-c",
		"while :; do cmp -s "+cluster.KubeletCA+" /run/scribble || { echo scribble > /run/scribble; cat /run/scribble > "+
			cluster.KubeletCA+"; echo x >> /run/scribbles; }; sleep 0.05; done")
	e := n.awaitRecord(audit.Conflict)
	if e["NODECERT_PATH"] != cluster.KubeletCA || e["NODECERT_FIELD"] != "kubeAPIServerServingCAData" {
		t.Errorf("the record is %v", e)
	}
	n.await("the conflict in the status", func() bool {
		c := n.status().Conflicts
		return len(c) == 1 && c[0].Path == cluster.KubeletCA
	})
	if out := n.run("node-cert-agent", "status"); !strings.Contains(out, "CONFLICT") {
		t.Errorf("status prints\n%s", out)
	}
	n.awaitMetric("node_cert_agent_conflicts 1\n")
	written := n.records(audit.Written, "NODECERT_FIELD=kubeAPIServerServingCAData")
	n.run("systemctl", "stop", "scribbler.service")
	n.awaitFile(cluster.KubeletCA, a) // at the next answer, within a minute
	if more := n.records(audit.Written, "NODECERT_FIELD=kubeAPIServerServingCAData") - written; more > 2 {
		t.Errorf("%d repairs after the conflict was known", more)
	}
	b := testpki.NewCA("b")
	n.patch(kubeletCA(b)) // what the ControllerConfig asks for anew is written at once all the same
	n.awaitFile(cluster.KubeletCA, b)
}
