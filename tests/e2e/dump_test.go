// SPDX-License-Identifier: Apache-2.0

//go:build real

package e2e

import (
	"errors"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/cluster"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane/controllerconfig"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// TestACrashLeavesNoMemoryBehind takes the limit on core dumps away, as if a handler were there that the
// kernel pipes them to, and has each half die where it may write, with a secret in its memory.
func TestACrashLeavesNoMemoryBehind(t *testing.T) {
	const password = "kennwort-19ab-e04d"
	a := testpki.NewCA("a")
	n := startOpenShift(t, a)
	halves := map[string]string{"node-cert-agent.service": "/var/lib/node-cert-agent",
		"node-cert-agent-writer.service": "/etc/mco"}
	for unit, dir := range halves {
		n.Must(n.Host.PutFile("/etc/systemd/system/"+unit+".d/90-dump.conf",
			host.File{Data: []byte("[Service]\nLimitCORE=infinity\nWorkingDirectory=" + dir + "\n")}))
	}
	n.Run("systemctl", "daemon-reload")
	n.publishCA(a)
	secret := controllerconfig.PullSecret("puller", password)
	n.create(controllerconfig.Spec{KubeAPIServerServingCAData: a, RootCAData: a, InternalRegistryPullSecret: secret})
	n.Must(n.StartAgent(n.Ctx))
	n.AwaitFile(pullSecret, append(secret, '\n'))

	pid := n.pid("node-cert-agent.service")
	if got := n.Run("stat", "-c", "%U", "/proc/"+pid+"/environ"); got != "root" {
		t.Errorf("the agent's memory is %s's, as proc(5) has it", got)
	}
	var failed *host.ExitError
	noPrivilege := []string{"setpriv", "--bounding-set=-all", "--inh-caps=-all"}
	n.Run(append(noPrivilege, "cat", "/proc/self/environ")...) // is of no use if that fails, too
	if _, err := n.Host.Run(n.Ctx, append(noPrivilege, "cat",
		"/proc/"+n.pid("node-cert-agent-writer.service")+"/environ")...); !errors.As(err, &failed) {
		t.Errorf("another process of uid 0 without privilege could look into the writer: %v", err)
	}
	for unit, dir := range halves {
		n.Run("systemctl", "kill", "-s", "ABRT", unit)
		if end := n.awaitEnd(unit)["EXIT_CODE"]; end != "killed" {
			t.Errorf("%s was %s, and dumped is what leaves its memory", unit, end)
		}
		if files := n.Run("find", dir, "-name", "core*"); files != "" {
			t.Errorf("%s left %s", unit, files)
		}
	}
	for _, text := range []string{password, string(secret[80:110])} {
		n.wantNowhere(text, pullSecret, "/var/lib/node-cert-agent/blobs")
	}
	n.Await("the next agent", func() bool { now := n.pid("node-cert-agent.service"); return now != "0" && now != pid })
	b := testpki.NewCA("b")
	n.patch(kubeletCA(b))
	n.AwaitFile(cluster.KubeletCA, b)
}

// awaitEnd waits for what systemd says of the end of a unit's process by SIGABRT.
func (n *node) awaitEnd(unit string) host.Entry { return n.AwaitEntry("UNIT="+unit, "EXIT_STATUS=6") }
