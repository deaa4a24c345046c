// SPDX-License-Identifier: Apache-2.0

//go:build real

package kubeadm

import (
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/cluster"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/must"
)

// site is what the page leaves to the reader, for the file that its first block writes: the image, and, because there is no
// kube-proxy, where pods find the API server.
const site = `images: [{name: registry.invalid/node-cert-controller, newName: ` + controller + `, newTag: test}]
patches:
- target: {kind: Deployment, name: node-cert-controller}
  patch: |-
    - op: add
      path: /spec/template/spec/containers/0/env
      value: [{name: KUBERNETES_SERVICE_HOST, value: ` + controlAddress + `}, {name: KUBERNETES_SERVICE_PORT, value: "6443"}]
END
`

func TestTheKubeadmPageIsAsWritten(t *testing.T) {
	c := start(t, shape{})
	c.seePairs()
	c.renewPairs()
	c.must(strings.Replace(c.page.Block("The cluster's side", 0), "END\n", site, 1))
	c.must(c.page.Block("The cluster's side", 1))
	c.follow()
	c.must(c.page.Block("All follow", 0))
	c.rotate()
	c.undo()
}

// follow gives both hosts a token and their configuration, and starts their agents.
func (c *kubeadmCluster) follow() {
	c.t.Helper()
	c.must(c.install.Block("A token", 0))
	token := c.control.File("/root/token.kubeconfig")
	for _, n := range c.nodes() {
		for path, f := range map[string]host.File{
			cluster.Fragment: {Data: []byte(c.page.Block("Each node", 0))},
			"/etc/node-cert-agent/config.d/60-quick.yaml": {Data: []byte(quick)},
			cluster.BootstrapDir + "/10-token.kubeconfig": {Data: token, Mode: 0o600},
		} {
			must.Do(c.t, n.Host.PutFile(path, f))
		}
	}
	must.Do(c.t, c.control.Host.PutFile("/etc/node-cert-agent/config.d/55-control-plane.yaml",
		host.File{Data: []byte(c.page.Block("Control-plane hosts", 0))}))
	for _, n := range c.nodes() {
		n.Run("systemctl", "enable", "--now", "node-cert-agent.service")
	}
	c.control.Await("the kubelet's own file", func() bool { return len(c.control.File(cluster.KubeletCA)) > 0 })
	c.control.Run("sh", "-euc", c.page.Block("Control-plane hosts", 1))
	c.await("2 nodes: 2 follow, 0 never reported", "kubectl node-certs status")
}
