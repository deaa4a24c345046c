// SPDX-License-Identifier: Apache-2.0

//go:build real

package enable

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/cluster"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
)

const (
	patience   = 90 * time.Second
	service    = "node-cert-agent.service"
	tokenFile  = "/etc/node-cert-agent/bootstrap.d/token.kubeconfig"
	kubeletCA  = "/etc/kubernetes/kubelet-ca.crt"
	noNetwork  = "disable systemd-networkd*\n"
	testPreset = "/etc/systemd/system-preset/00-test.preset"
	// hurry belongs to the test's images: the times of a test.
	hurry = "/usr/lib/node-cert-agent/config.d/20-hurry.yaml"
)

var hurried = host.File{Data: []byte(`apiVersion: config.node-cert-agent.io/v1alpha1
actions: {batchWindow: 200ms, randomizedDelay: 0s}
trust: {holdRemovals: 0s}
watch: {retryJitter: 200ms, retryMax: 1s}
bootstrap: {pollInterval: 200ms, idlePollInterval: 1s}
identity: {approvalPollMax: 1s}
`)}

// firstBoot makes the next boot the first one for systemd: it makes the host's ID and applies presets, of
// which Debian's would start a containerd, and wait for a network that these hosts do not have.
func firstBoot(files map[string]host.File) map[string]host.File {
	files["/etc/machine-id"] = host.File{Data: []byte("uninitialized\n")}
	files[testPreset] = host.File{Data: []byte("disable containerd.service\n" + noNetwork)}
	return files
}

// node is a host that is provisioned.
type node struct {
	*host.Host
	bed *bed
	t   *testing.T
	ctx context.Context
}

// boot boots a host that reaches the API server at the address that the bootstrap kubeconfig has.
func boot(t *testing.T, o host.Options) *node {
	t.Helper()
	b := theBed(t)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	t.Cleanup(cancel)
	if o.Files == nil {
		o.Files = map[string]host.File{}
	}
	o.Files[hurry] = hurried
	h, err := host.Boot(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	n := &node{h, b, t, ctx}
	t.Cleanup(func() {
		if t.Failed() {
			journal, _ := h.Journal(context.WithoutCancel(ctx), "-o", "short-precise", "-n", "150")
			t.Logf("the host's journal ends with\n%s", journal)
		}
		if err := h.Stop(); err != nil {
			t.Error(err)
		}
	})
	u, err := url.Parse(b.plane.URL())
	n.must(err)
	_, err = h.Listen(ctx, u.Host, u.Host)
	n.must(err)
	return n
}

func (n *node) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

// run runs a script on the host as root, in its home.
func (n *node) run(script string) string {
	n.t.Helper()
	out, err := n.Run(n.ctx, "sh", "-e", "-c", "cd; "+script)
	n.must(err)
	return strings.TrimSpace(out)
}

// section runs the block of the page on the host.
func (n *node) section(heading string) {
	n.t.Helper()
	script, err := script(install, heading)
	n.must(err)
	n.run(script)
}

func (n *node) want(script, want string) {
	n.t.Helper()
	if got := n.run(script); got != want {
		n.t.Errorf("%s: %q, want %q", script, got, want)
	}
}

func (n *node) status() (s report.Status) {
	b, _ := os.ReadFile(n.Path("/run/node-cert-agent/status.json"))
	_ = json.Unmarshal(b, &s)
	return s
}

func (n *node) await(what string, done func() bool) {
	n.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !done() {
		select {
		case <-tick.C:
		case <-deadline:
			status, _ := os.ReadFile(n.Path("/run/node-cert-agent/status.json"))
			n.t.Fatalf("%s did not come about; status is\n%s", what, status)
		}
	}
}

// awaitFile waits until the host's file has this content.
func (n *node) awaitFile(path string, want []byte) {
	n.t.Helper()
	n.await(path+" with the wanted content", func() bool {
		got, _ := os.ReadFile(n.Path(path))
		return bytes.Equal(got, want)
	})
}

// awaitSynced approves whatever is asked for, and waits for the identity and for the first file.
func (n *node) awaitSynced() {
	n.t.Helper()
	n.await("an identity", func() bool {
		n.must(cluster.Decide(n.ctx, n.bed.plane, "approve"))
		i := n.status().Identity
		return i != nil && i.State == "active"
	})
	n.awaitFile(kubeletCA, n.bed.ca)
	n.await("following without trouble", func() bool { s := n.status(); return s.State == "following" && s.Error == "" })
	n.want("systemctl is-enabled "+service, "enabled")
}

// awaitGone waits until the file that served is consumed.
func (n *node) awaitGone(path string) {
	n.t.Helper()
	n.await(path+" to be consumed", func() bool {
		_, err := os.Stat(n.Path(path))
		return os.IsNotExist(err)
	})
}

// standIn is a stand-in for a container runtime or a kubelet: it notes each start and each reload.
func standIn(name string) host.File {
	note := "echo %s >>/run/" + name + ".log"
	return host.File{Data: fmt.Appendf(nil,
		"[Service]\nExecStart=/bin/sh -c '"+note+"; exec sleep infinity'\nExecReload=/bin/sh -c '"+note+
			"'\n[Install]\nWantedBy=multi-user.target\n", "start", "reload")}
}

// awaitLoads waits until the stand-in has noted exactly this.
func (n *node) awaitLoads(name, want string) {
	n.t.Helper()
	n.awaitFile("/run/"+name+".log", []byte(want+"\n"))
}
