// SPDX-License-Identifier: Apache-2.0

//go:build real

package e2e

import (
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/cluster"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// TestALoopThatHangsIsEndedByTheWatchdogAndStartedAgain has a loop that waits for a writer that does not answer,
// in a process that is otherwise well: timers, connections and the garbage collector go on.
func TestALoopThatHangsIsEndedByTheWatchdogAndStartedAgain(t *testing.T) {
	const service, writer = "node-cert-agent.service", "node-cert-agent-writer.service"
	n, _ := started(t, cluster.Options{Host: host.Options{Files: map[string]host.File{
		"/etc/systemd/system/" + service + ".d/watchdog.conf": {Data: []byte("[Service]\nWatchdogSec=5\n")},
	}}})
	run := n.show("InvocationID", service)
	n.Run("systemctl", "kill", "-s", "STOP", writer)
	b := testpki.NewCA("b")
	n.patch(kubeletCA(b))
	n.Await("an end by the watchdog", func() bool { return n.show("NRestarts", service) != "0" })
	if log := n.Journal("UNIT="+service, "-o", "cat"); !strings.Contains(log, "Failed with result 'watchdog'") {
		t.Errorf("systemd says\n%s", log)
	}
	n.Run("systemctl", "kill", "-s", "CONT", writer)
	n.AwaitFile(cluster.KubeletCA, b)
	n.awaitState("following")
	if n.show("InvocationID", service) == run {
		t.Error("it is the same run")
	}

	// One that has nothing to do is left alone, for more than twice the watchdog's time.
	restarts := n.show("NRestarts", service)
	since := n.Status().Since
	n.Run("sleep", "12")
	if got := n.show("NRestarts", service); got != restarts || !n.Status().Since.Equal(since) {
		t.Errorf("an idle agent was started again: %s restarts, before %s", got, restarts)
	}
}
