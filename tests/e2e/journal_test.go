// SPDX-License-Identifier: Apache-2.0

//go:build real

package e2e

import (
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/cluster"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
)

func TestDiagnosticsAreEntriesWithFieldsFromTheLevelOnThatIsAskedFor(t *testing.T) {
	n, _ := started(t, cluster.Options{})
	diagnostics := func() string {
		return n.Journal("-q", "-o", "cat", "_SYSTEMD_UNIT=node-cert-agent.service", "_TRANSPORT=journal",
			"SYSLOG_IDENTIFIER=node-cert-agent", "PRIORITY=7", "NODECERT_STATE=following", "NODECERT_DESIRED=true")
	}
	if said := diagnostics(); said != "" {
		t.Errorf("without being asked for, the level debug says %q", said)
	}
	command := "/usr/bin/node-cert-agent run --log-level debug --kubeconfig " + cluster.Kubeconfig
	n.Must(n.Host.PutFile("/etc/systemd/system/node-cert-agent.service.d/zz-debug.conf",
		host.File{Data: []byte("[Service]\nExecStart=\nExecStart=" + command + "\n")}))
	n.Run("systemctl", "daemon-reload")
	n.Run("systemctl", "restart", "node-cert-agent.service")
	n.Await("an entry of the level debug", func() bool {
		return strings.HasPrefix(diagnostics(), `read {"state": "following"`)
	})
}
