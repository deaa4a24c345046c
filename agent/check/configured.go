// SPDX-License-Identifier: Apache-2.0

package check

import (
	"strings"

	"github.com/node-cert-agent/node-cert-agent/agent/printable"
)

// nodeName is the node's in the cluster, as far as it is known; Problem says why it may be another one.
type nodeName struct{ Name, Problem string }

// Host is what else has set this host up.
type Host struct{ MachineConfigDaemon, Kubeadm bool }

func configuration(f Facts, r *report) {
	r.ok("configuration", "valid; from %s", strings.Join(f.Sources, ", "))
	if !f.Plain && !f.Root {
		r.add(Warn, "user", "run it as root", "not root: the writer, its files, the reloader, the units and the identity "+
			"are not looked at")
	}
	if !f.Plain && f.NoUser {
		r.add(Fail, "user", "systemd-sysusers node-cert-agent.conf && systemd-tmpfiles --create node-cert-agent.conf",
			"there is no user node-cert-agent, as which the service runs: it cannot start")
	}
}

func profile(f Facts, r *report) {
	const what = "profile"
	switch h := f.Host; {
	case h.MachineConfigDaemon && f.Profile != "openshift":
		r.add(Warn, what, "set `profile: openshift`",
			"%s, and the machine config daemon manages this host: both may write the same files", f.Profile)
	case f.Profile == "openshift" && !h.MachineConfigDaemon:
		r.add(Warn, what, "set `profile: standalone`", "openshift, and no machine config daemon has been on this host")
	case h.Kubeadm && f.Profile == "standalone":
		r.add(Warn, what, "set `profile: kubeadm`", "standalone, and kubeadm made this node")
	case f.Profile == "kubeadm" && !h.Kubeadm:
		r.add(Warn, what, "set `profile: standalone`", "kubeadm, and kubeadm did not make this node")
	default:
		r.ok(what, "%s", f.Profile)
	}
}

func node(f Facts, r *report) {
	const what, do = "node name", "set `node: {name: NAME}`, NAME as kubectl get nodes shows it"
	switch {
	case f.Node.Name == "":
		r.add(Fail, what, do, "unknown: the kubelet is given none and the host's is not one")
	case f.Node.Problem != "":
		r.add(Warn, what, do, "%s, and perhaps another one: %s", f.Node.Name, printable.Text(f.Node.Problem))
	default:
		r.ok(what, "%s", f.Node.Name)
	}
}
