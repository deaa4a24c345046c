// SPDX-License-Identifier: Apache-2.0

//go:build real

package enable

import (
	"fmt"
	"net/url"
	"os"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testnode"
)

const (
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
	*testnode.Node
	ca []byte // in the files that it gets
}

// boot boots a host that reaches the API server at the address that the bootstrap kubeconfig has.
func boot(t *testing.T, o host.Options) *node {
	t.Helper()
	e := sharedEnv(t)
	if o.Files == nil {
		o.Files = map[string]host.File{}
	}
	o.Files[hurry] = hurried
	n := &node{testnode.Boot(t, o), e.ca}
	n.Plane = e.plane
	u, err := url.Parse(e.plane.URL())
	n.Must(err)
	_, err = n.Host.Listen(n.Ctx, u.Host, u.Host)
	n.Must(err)
	return n
}

// sh runs a script on the host as root, in its home.
func (n *node) sh(script string) string {
	n.T.Helper()
	return n.Run("sh", "-e", "-c", "cd; "+script)
}

// section runs the block of the page on the host.
func (n *node) section(heading string) {
	n.T.Helper()
	script, err := script(install, heading)
	n.Must(err)
	n.sh(script)
}

func (n *node) want(script, want string) {
	n.T.Helper()
	if got := n.sh(script); got != want {
		n.T.Errorf("%s: %q, want %q", script, got, want)
	}
}

// awaitSynced approves whatever is asked for, and waits for the identity and for the first file.
func (n *node) awaitSynced() {
	n.T.Helper()
	n.AwaitApproved()
	n.AwaitFile(kubeletCA, n.ca)
	n.Await("following without trouble", func() bool { s := n.Status(); return s.State == "following" && s.Error == "" })
	n.want("systemctl is-enabled "+service, "enabled")
}

// awaitGone waits until the file that served is consumed.
func (n *node) awaitGone(path string) {
	n.T.Helper()
	n.Await(path+" to be consumed", func() bool {
		_, err := os.Stat(n.Host.Path(path))
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
	n.T.Helper()
	n.AwaitFile("/run/"+name+".log", []byte(want+"\n"))
}
