// SPDX-License-Identifier: Apache-2.0

//go:build real

package e2e

import (
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/cluster"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane/controllerconfig"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

func TestAFieldAtAnotherPathIsWrittenOnceTheWriterIsOpenedForIt(t *testing.T) {
	const elsewhere, dropin = "/srv/own certs/cloud.pem",
		"/etc/systemd/system/node-cert-agent-writer.service.d/50-files.conf"
	n := start(t, cluster.Options{Config: strings.Replace(cluster.Config, "files:\n",
		"files:\n  cloudProviderCAData: {path: \""+elsewhere+"\"}\n", 1)})
	n.Run("mkdir", "-p", "/srv/own certs", "/srv/others", "/etc/systemd/system/node-cert-agent-writer.service.d")
	a, b := testpki.NewCA("a"), testpki.NewCA("b")
	n.create(controllerconfig.Spec{KubeAPIServerServingCAData: a, CloudProviderCAData: b})
	n.Must(n.StartAgent(n.Ctx))
	n.Await("trouble that says what is the matter", func() bool {
		return strings.Contains(n.Status().Error, "read-only file system")
	})
	n.wantFile(elsewhere, nil)
	n.AwaitFile(cluster.KubeletCA, a) // the other files go on, and their units
	n.awaitUnit(cluster.Reader, "up to date")
	c := testpki.NewCA("c")
	n.patch(kubeletCA(c))
	n.Await("the reload beside a field that fails",
		func() bool { return string(n.File("/run/reader.loaded")) == string(c) })
	if n.Status().Error == "" {
		t.Error("the trouble is over although the field fails")
	}
	// In between it may be that the writer has ended, which it does to see the next mounts.
	n.Await("the trouble", func() bool { return strings.Contains(n.Status().Error, "read-only file system") })

	n.Run("node-cert-agent", "writer-dropin", "--write", dropin)
	n.Run("systemctl", "daemon-reload")
	n.Run("systemctl", "try-restart", "node-cert-agent-writer.service")
	n.AwaitFile(elsewhere, b)
	n.wantFile(cluster.KubeletCA, c)
	n.Await("the end of the trouble", func() bool { return n.Status().Error == "" })
	writer := n.Run("systemctl", "show", "-P", "MainPID", "node-cert-agent-writer.service")
	mounts := n.Run("cat", "/proc/"+writer+"/mountinfo")
	if !strings.Contains(mounts, ` /srv/own\040certs rw,`) || !strings.Contains(mounts, " / / ro,") ||
		strings.Contains(mounts, " /srv rw") {
		t.Errorf("the writer's mounts are\n%s", mounts)
	}
}
