// SPDX-License-Identifier: Apache-2.0

//go:build real

package escape

import (
	"testing"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
)

func TestWhatTheAgentNotifiesHoldsNobodyUp(t *testing.T) { notify(t, host.Same) }

func TestWhatTheAgentNotifiesHoldsNobodyUpUnderANewerSystemd(t *testing.T) { notify(t, host.Newer) }

// notifications are of sd_notify(3), those last that end whoever sends them.
func notifications(others string) (out []attempt) {
	for _, text := range []string{"EXTEND_TIMEOUT_USEC=3600000000", "WATCHDOG_USEC=3600000000", "MAINPID=1",
		"MAINPID=" + others,
		"RELOADING=1\nMONOTONIC_USEC=1", "STATUS=\x1b]0;escaped\x07", "ERRNO=5",
		"BUSERROR=org.freedesktop.DBus.Error.TimedOut", "EXIT_STATUS=0",
		"FDSTOREREMOVE=1\nFDNAME=x", "INVOCATION_ID=00000000000000000000000000000000", "UNIT=kubelet.service\nSTATUS=x"} {
		out = append(out, attempt{Name: "notify " + text, Do: "notify", Args: []string{text}, Allowed: true})
	}
	return append(out, attempt{Name: "store a descriptor", Do: "store", Args: []string{"FDSTORE=1\nFDNAME=x"},
		Allowed: true},
		attempt{Name: "stay busy", Do: "notify", Args: []string{"EXTEND_TIMEOUT_USEC=3600000000"}, Allowed: true},
		attempt{Name: "and never be ready", Do: "hang"})
}

// notify starts kubelet and agent together, as at boot. Whatever the agent notifies, the kubelet comes up.
func notify(t *testing.T, r host.Release) {
	t.Parallel()
	n := boot(t, kubeadm, r)
	n.sh("systemctl start victim.service reader.service " + writerUnit)
	victim := n.sh("systemctl show -P MainPID victim.service")
	n.give(notifications(victim))
	n.sh("systemctl start --no-block node-cert-agent.service kubelet.service")
	n.sh("until systemctl is-active -q kubelet.service; do sleep 0.2; done")
	// It came up although the agent is not ready, and not because the agent had ended.
	if got := n.sh("systemctl is-active node-cert-agent.service || :"); got != "activating" {
		t.Errorf("the agent is %s when the kubelet comes up: %s", got,
			n.sh("journalctl -q --no-pager -o cat -u node-cert-agent.service"))
	}
	if got := n.sh("systemctl show -P NFileDescriptorStore node-cert-agent.service; systemctl is-active victim.service " +
		"reader.service kubelet.service"); got != "0\nactive\nactive\nactive" {
		t.Errorf("afterwards: %q", got)
	}
	if own := n.sh("systemctl show -P MainPID node-cert-agent.service"); own == "1" || own == victim {
		t.Errorf("the agent's main process is %s", own)
	}
	for _, last := range []string{"STOPPING=1", "WATCHDOG=trigger"} {
		n.give([]attempt{{Do: "notify", Args: []string{"READY=1"}}, {Do: "notify", Args: []string{last}}, {Do: "hang"}})
		n.sh("systemctl kill -s KILL node-cert-agent.service; systemctl stop node-cert-agent.service; systemctl reset-failed " +
			"node-cert-agent.service; systemctl start node-cert-agent.service || :")
		n.sh("systemctl stop node-cert-agent.service")
		if got := n.sh("systemctl is-active victim.service reader.service kubelet.service " +
			writerUnit); got != "active\nactive\nactive\nactive" {
			t.Errorf("after %s: %q", last, got)
		}
	}
}
