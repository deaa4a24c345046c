// SPDX-License-Identifier: Apache-2.0

//go:build real

package enable

import (
	"os"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
)

const dropIn = "/etc/systemd/system/node-cert-agent.service.d/10-token.conf"

// TestTheTokenComesAsACredentialThatMayBeMissing is about what systemd does, in the release of today's hosts and
// in the next.
func TestTheTokenComesAsACredentialThatMayBeMissing(t *testing.T) {
	e := sharedEnv(t)
	for name, release := range map[string]host.Release{"credential": host.Same, "newer": host.Newer} {
		t.Run(name, func(t *testing.T) {
			n := boot(t, host.Options{Name: name, Release: release, Trees: e.layered(t),
				Files: map[string]host.File{"/root/token.kubeconfig": {Data: e.read(t, "token.kubeconfig"), Mode: 0o600}}})
			n.with("LoadCredential=bootstrap-kubeconfig:/etc/node-cert-agent/missing")
			n.want("systemctl start "+service+" 2>/dev/null || systemctl show -P ExecMainStatus "+service, "243")
			n.with("LoadCredential=bootstrap-kubeconfig")
			n.sh("systemctl start " + service)
			n.Await("the wait for a credential", func() bool {
				i := n.Status().Identity
				return i != nil && i.State == "no credential"
			})
			n.sh("systemctl stop " + service + "; rm " + dropIn)

			n.section("The token as a credential")
			n.awaitSynced()
			n.want("stat -c '%a %U' /etc/credstore/bootstrap-kubeconfig", "600 root")

			n.sh("systemctl stop " + service + "; node-cert-agent reset; rm /run/node-cert-agent/status.json " + kubeletCA)
			n.sh("mkdir -p /etc/credstore.encrypted; systemd-creds encrypt --with-key=host " +
				"/etc/credstore/bootstrap-kubeconfig /etc/credstore.encrypted/bootstrap-kubeconfig; rm " +
				"/etc/credstore/bootstrap-kubeconfig")
			n.with("LoadCredentialEncrypted=bootstrap-kubeconfig")
			n.sh("systemctl start " + service)
			n.awaitSynced()
			if _, err := os.Stat(n.Host.Path("/etc/credstore/bootstrap-kubeconfig")); !os.IsNotExist(err) {
				t.Errorf("the credential in clear: %v, want it gone", err)
			}
		})
	}
}

// with gives the agent's service one more setting.
func (n *node) with(setting string) {
	n.T.Helper()
	n.Must(n.Host.PutFile(dropIn, host.File{Data: []byte("[Service]\n" + setting + "\n")}))
	n.sh("systemctl reset-failed; systemctl daemon-reload")
}
