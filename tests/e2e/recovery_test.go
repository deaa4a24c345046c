// SPDX-License-Identifier: Apache-2.0

//go:build real

package e2e

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/cluster"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane/controllerconfig"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// slow is the usual configuration with enough time between a file and its reload for something to
// happen.
var slow = strings.Replace(cluster.Config, "batchWindow: 200ms", "batchWindow: 5s", 1)

func TestAnAPIServerKilledInTheMiddleOfARotationLosesNothing(t *testing.T) {
	n, a := started(t, cluster.Options{})
	grown := append(slices.Clone(a), testpki.NewCA("b")...)
	n.patch(kubeletCA(grown))
	n.Must(n.Plane.StopAPIServer(n.Ctx, syscall.SIGKILL))
	n.awaitState("unreachable")
	n.Run("rm", cluster.KubeletCA) // drift heals without an API server
	n.Await("the file", func() bool { return len(n.File(cluster.KubeletCA)) > 0 })

	n.Must(n.Plane.StartAPIServer(n.Ctx))
	n.AwaitFile(cluster.KubeletCA, grown)
	n.awaitState("following")
	pruned := testpki.NewCA("c")
	n.awaitVersion(n.patch(kubeletCA(pruned)))
	n.wantFile(cluster.KubeletCA, pruned)
}

func TestAnAPIServerThatStopsAnsweringIsLeftAndFoundAgain(t *testing.T) {
	n, a := started(t, cluster.Options{Config: strings.Replace(cluster.Config, "watch: {", "watch: {idleTimeout: 10s, ",
		1)})
	n.Must(n.Plane.FreezeAPIServer())
	n.awaitState("unreachable")
	n.wantFile(cluster.KubeletCA, a)
	n.Must(n.Plane.ThawAPIServer())
	n.awaitState("following")
	b := testpki.NewCA("b")
	n.patch(kubeletCA(b))
	n.AwaitFile(cluster.KubeletCA, b)
}

func TestAnAgentKilledBetweenRenameAndReloadStillReloadsOnce(t *testing.T) {
	n, _ := started(t, cluster.Options{Config: slow})
	reloads := n.Loads(n.Ctx, "reload")
	b := testpki.NewCA("b")
	n.patch(kubeletCA(b))
	n.AwaitFile(cluster.KubeletCA, b)
	n.Run("systemctl", "kill", "-s", "KILL", "node-cert-agent.service")
	n.wantLoads("reload", reloads) // else the kill came too late to prove anything
	n.Await("the reload", func() bool { return n.Loads(n.Ctx, "reload") > reloads })
	n.awaitUnit(cluster.Reader, "up to date")
	n.wantFile("/run/reader.loaded", b)
	n.Run("systemctl", "restart", "node-cert-agent.service")
	n.awaitState("following")
	n.awaitUnit(cluster.Reader, "up to date")
	n.wantLoads("reload", reloads+1)
}

func TestFromAToBAndBackRestartsNobody(t *testing.T) {
	n, a := started(t, cluster.Options{Config: strings.Replace(slow, "verb: reload", "verb: try-restart", 1)})
	starts := n.Loads(n.Ctx, "start")
	b := testpki.NewCA("b")
	n.patch(kubeletCA(b))
	n.AwaitFile(cluster.KubeletCA, b)
	n.awaitVersion(n.patch(kubeletCA(a))) // else the unit may be shown as before either change
	n.wantFile(cluster.KubeletCA, a)
	n.awaitUnit(cluster.Reader, "up to date")
	n.wantLoads("start", starts)
}

func TestAReloadByHandBetweenAToBAndBackIsMadeGood(t *testing.T) {
	n, a := started(t, cluster.Options{Config: slow})
	b := testpki.NewCA("b")
	n.patch(kubeletCA(b))
	n.AwaitFile(cluster.KubeletCA, b)
	n.Run("systemctl", "reload", cluster.Reader)
	n.wantFile("/run/reader.loaded", b)
	reloads := n.Loads(n.Ctx, "reload")
	n.awaitVersion(n.patch(kubeletCA(a)))
	n.Await("the reload", func() bool { return n.Loads(n.Ctx, "reload") > reloads })
	n.awaitUnit(cluster.Reader, "up to date")
	n.wantFile("/run/reader.loaded", a)
	n.wantLoads("reload", reloads+1)
}

func TestALostStateDirectoryRestartsNothingAndRemovesNothing(t *testing.T) {
	config := strings.Replace(cluster.Config, "verb: reload", "verb: try-restart", 1)
	n, a := started(t, cluster.Options{Config: config})
	registry := func(names ...string) controllerconfig.Spec {
		var s controllerconfig.Spec
		for _, name := range names {
			s.ImageRegistryBundleData = append(s.ImageRegistryBundleData, controllerconfig.Registry{File: name, Data: a})
		}
		return s
	}
	n.awaitVersion(n.patch(registry("old", "new")))
	n.awaitUnit(cluster.Reader, "up to date")
	n.Run("systemctl", "stop", "node-cert-agent.service")
	starts := n.Loads(n.Ctx, "start") + 1
	n.Run("systemctl", "restart", cluster.Reader)
	n.Await("the restart", func() bool { return n.Loads(n.Ctx, "start") == starts })
	n.Run("sh", "-c", "rm -rf /var/lib/node-cert-agent/*")
	v := n.patch(registry("new"))

	n.Run("systemctl", "start", "node-cert-agent.service")
	n.awaitVersion(v)
	n.awaitUnit(cluster.Reader, "up to date")
	n.wantFile(certsD("old"), a)
	n.wantLoads("start", starts)
	if n.Records(audit.NoMemory) == 0 {
		t.Error("the loss is not on record")
	}
}

// kubelet stands in for a kubelet whose static pod is the API server: it must not wait for us. It notes
// which bundle it found.
var kubelet = map[string]host.File{"/etc/systemd/system/kubelet.service": {Data: []byte("[Service]\nType=oneshot\nRemainAfterExit=yes\n" +
	"ExecStart=-/bin/cp " + cluster.KubeletCA + " /run/kubelet.loaded\n[Install]\nWantedBy=multi-user.target\n")}}

func TestAFirstBootDoesNotWaitForTheAPIServer(t *testing.T) {
	n := start(t, cluster.Options{Plane: controlplane.Options{APIServerOff: true},
		Host: host.Options{Files: kubelet, Enable: []string{"node-cert-agent.service", "kubelet.service"}}})
	if state := n.Run("systemctl", "is-active", "kubelet.service", "node-cert-agent.service"); state != "active\nactive" {
		t.Errorf("after the boot the kubelet and the agent are %q", state)
	}
	n.awaitState("unreachable")
	a := testpki.NewCA("a")
	n.Must(n.Plane.StartAPIServer(n.Ctx))
	n.Must(n.Prepare(n.Ctx))
	n.create(kubeletCA(a))
	n.AwaitFile(cluster.KubeletCA, a)
	n.awaitState("following")
}

func TestAHostBootsWithoutAnAPIServerAndRepairsItself(t *testing.T) {
	n, a := started(t, cluster.Options{Host: host.Options{Files: kubelet}})
	n.Run("systemctl", "enable", "node-cert-agent.service", "kubelet.service")
	n.Run("systemctl", "stop", "node-cert-agent.service")
	n.Run("rm", cluster.KubeletCA)
	n.Must(n.Plane.StopAPIServer(n.Ctx, syscall.SIGKILL))

	n.Must(n.Host.Reboot(n.Ctx)) // returns when the default target is reached
	n.wantFile("/run/kubelet.loaded", a)
	n.awaitState("unreachable")

	n.Must(n.Plane.StartAPIServer(n.Ctx))
	n.awaitState("following")
	b := testpki.NewCA("b")
	n.patch(kubeletCA(b))
	n.AwaitFile(cluster.KubeletCA, b)
}

func TestAPowerCutIsSurvived(t *testing.T) {
	n, _ := started(t, cluster.Options{})
	n.Run("systemctl", "enable", "node-cert-agent.service")
	b := testpki.NewCA("b")
	n.patch(kubeletCA(b))
	n.AwaitFile(cluster.KubeletCA, b)
	n.Host.Kill()
	c := testpki.NewCA("c")
	v := n.patch(kubeletCA(c))
	n.Must(n.Host.Start(n.Ctx))
	n.awaitVersion(v)
	n.wantFile(cluster.KubeletCA, c)
}

func TestAMissingObjectOrKindIsAStateAndTheFilesStay(t *testing.T) {
	n, a := started(t, cluster.Options{})
	n.Must(n.Store.Delete(n.Ctx))
	n.awaitState("not found")
	n.wantFile(cluster.KubeletCA, a)
	_, err := n.Plane.Kubectl(n.Ctx, "delete", "crd", "controllerconfigs.node-cert-agent.io")
	n.Must(err)
	n.Await("a reason that names the kind", func() bool {
		s := n.Status()
		return s.State == "not found" && strings.Contains(s.Reason, "controllerconfigs")
	})
	n.wantFile(cluster.KubeletCA, a)
	n.Must(n.Plane.InstallCRD(n.Ctx))
	b := testpki.NewCA("b")
	n.create(kubeletCA(b))
	n.AwaitFile(cluster.KubeletCA, b)
}
