// SPDX-License-Identifier: Apache-2.0

//go:build real

package enable

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
)

// TestAHostedClusterPublishesOurObject has a worker with the configuration of the page, and nothing of OpenShift's.
func TestAHostedClusterPublishesOurObject(t *testing.T) {
	e := sharedEnv(t)
	publish, err := script(openShiftPage, "HyperShift")
	if err != nil {
		t.Fatal(err)
	}
	text, err := hyperShift()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(e.dir, "kubelet-ca.crt"), e.ca, 0o600); err != nil {
		t.Fatal(err)
	}
	n := boot(t, host.Options{Name: "hosted", Trees: e.layered(t), Enable: []string{service}, Files: map[string]host.File{
		"/etc/node-cert-agent/config.d/50-site.yaml": {Data: []byte(text)},
		tokenFile: {Data: e.read(t, "token.kubeconfig"), Mode: 0o600}}})
	e.must(t, publish)
	n.awaitSynced()
	n.want("cd /etc; ls node-cert-agent/bootstrap.d kubernetes",
		"kubernetes:\nkubelet-ca.crt\nstatic-pod-resources\n\nnode-cert-agent/bootstrap.d:\ntoken.kubeconfig\ntoken.kubeconfig.consumed")
}
