// SPDX-License-Identifier: Apache-2.0

//go:build real

package packages

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/cluster"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane/controllerconfig"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testnode"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

const (
	service  = "node-cert-agent.service"
	rootCA   = "/etc/kubernetes/ca.crt"
	stateDir = "/var/lib/node-cert-agent"
)

// site has the identity's times in seconds, and leaves Debian's path of the trust anchors to the package.
const site = `apiVersion: config.node-cert-agent.io/v1alpha1
files:
  kubeAPIServerServingCAData: {onChange: [reader.service]}
units:
  reader.service: {verb: reload}
actions: {batchWindow: 200ms, randomizedDelay: 0s}
trust: {holdRemovals: 0s}
watch: {retryJitter: 200ms, retryMax: 1s}
node: {name: node}
bootstrap: {pollInterval: 200ms, idlePollInterval: 1s}
identity: {approvalPollMax: 1s}
`

// node is a cluster with a host on which the agent was installed from a package.
type node struct{ *testnode.Node }

func install(t *testing.T, o cluster.Options) *node {
	t.Helper()
	return &node{testnode.Start(t, o)}
}

// says runs a command that may fail, and returns what it says.
func (n *node) says(command string) string {
	n.T.Helper()
	out, err := n.Host.Run(n.Ctx, "sh", "-c", command)
	if failed := (*host.ExitError)(nil); err != nil && !errors.As(err, &failed) {
		n.T.Fatal(err)
	}
	return strings.TrimSpace(out)
}

func (n *node) want(command, want string) {
	n.T.Helper()
	if got := n.says(command); got != want {
		n.T.Errorf("%s: %q, want %q", command, got, want)
	}
}

// stamp identifies inodes and their last change: equal stamps mean that nobody wrote the files.
func (n *node) stamp(paths ...string) string {
	return n.Run(append([]string{"stat", "-c", "%n %i %z"}, paths...)...)
}

func (n *node) started(version string) {
	n.T.Helper()
	n.AwaitRecord(audit.Started, "NODECERT_VERSION=v"+version)
}

// dpkg installs, upgrades or downgrades.
func dpkg(ctx context.Context, h *host.Host, deb string) error {
	data, err := os.ReadFile(deb)
	if err != nil {
		return err
	}
	if err := h.PutFile("/root/agent.deb", host.File{Data: data}); err != nil {
		return err
	}
	_, err = h.Run(ctx, "dpkg", "--install", "/root/agent.deb")
	return err
}

// awaitFirstSync approves what the agent asks for, and waits for the first files.
func (n *node) awaitFirstSync(ca []byte) {
	n.T.Helper()
	n.AwaitApproved()
	n.AwaitFile(cluster.KubeletCA, ca)
	n.AwaitFile(rootCA, ca)
}

// enabled is a host that got its identity and first files after `dpkg --install` and `systemctl enable --now`.
func enabled(t *testing.T) (n *node, ca []byte) {
	t.Helper()
	deb := debOf(t, first, oldVersion)
	n = install(t, cluster.Options{Bootstrap: true, Config: site, Install: func(ctx context.Context,
		h *host.Host) error {
		return dpkg(ctx, h, deb)
	}})
	n.want("systemctl is-enabled "+service, "disabled")
	n.want("systemctl is-active "+service+" node-cert-agent-writer.socket", "inactive\ninactive")
	n.want("ls -d "+stateDir, "")
	n.want("find / -xdev -path '*node-cert-agent*' -newer /usr/bin/node-cert-agent -path '/var/*' -not -path "+
		"'/var/lib/dpkg/*'", "")
	n.want("cat "+cluster.Fragment, strings.TrimSpace(site))
	n.want("stat -c '%a %U' /etc/node-cert-agent/bootstrap.d", "700 root")
	// The kubelet comes after the agent, and neither waits for the network.
	n.want("systemctl show -P Before "+service+" | grep -ow kubelet.service", "kubelet.service")
	n.want("systemctl show -P Wants "+service+" | grep -ow node-cert-agent-writer.socket", "node-cert-agent-writer.socket")
	n.want("systemctl show -P After "+service+
		" | grep -oE 'node-cert-agent-writer.socket|network-online.target|remote-fs.target'", "node-cert-agent-writer.socket")
	n.want("systemctl show -P TimeoutStartUSec "+service, "30s")

	ca = testpki.NewCA("first")
	_, err := n.Store.Create(n.Ctx, controllerconfig.Spec{KubeAPIServerServingCAData: ca, RootCAData: ca,
		AdditionalTrustBundle: ca})
	n.Must(err)
	n.Must(n.MakeToken(n.Ctx, "token1"))
	n.Must(n.PutToken("10-token", "token1"))
	n.Run("systemctl", "start", cluster.Reader)
	n.Run("systemctl", "enable", "--now", service)
	n.awaitFirstSync(ca)
	n.Await("the additional bundle",
		func() bool { return n.says("ls /usr/local/share/ca-certificates/*.crt | wc -l") == "1" })
	return n, ca
}

func TestADebLivesThroughUpgradeDowngradeRemovalAndPurge(t *testing.T) {
	n, _ := enabled(t)
	n.started(oldVersion)
	still := n.stamp(rootCA)
	n.upgradeDuringARotation(debOf(t, upgrade, newVersion))
	n.started(newVersion)

	// What a later version remembers, this one cannot read.
	n.Run("systemctl", "stop", service)
	n.Run("rm", "/run/node-cert-agent/status.json") // what is awaited is said by the other version
	n.Run("sed", "-i", `s/^{"version":[0-9]*,/{"version":99,/`, stateDir+"/state.json")
	files := n.stamp(rootCA, cluster.KubeletCA)
	n.Must(dpkg(n.Ctx, n.Host, debOf(t, first, oldVersion)))
	n.Run("systemctl", "start", service)
	n.Await("following", func() bool { s := n.Status(); return s.State == "following" && s.Error == "" })
	n.want("grep -o '^{\"version\":[0-9]*' "+stateDir+"/state.json.bad", `{"version":99`)
	n.want("systemctl show -P NRestarts "+service, "0")
	if got := n.stamp(rootCA, cluster.KubeletCA); got != files || n.stamp(rootCA) != still {
		t.Errorf("files were touched: %s, before %s", got, files)
	}
	ca := testpki.NewCA("after the downgrade")
	_, err := n.Store.Patch(n.Ctx, controllerconfig.Spec{KubeAPIServerServingCAData: ca})
	n.Must(err)
	n.AwaitFile(cluster.KubeletCA, ca)
	requests, err := n.Requests(n.Ctx)
	n.Must(err)
	if len(requests) != 1 {
		t.Errorf("the agent asked for another identity: %v", requests)
	}

	files = n.stamp(rootCA, cluster.KubeletCA)
	n.Run("dpkg", "--remove", "node-cert-agent")
	n.want("systemctl list-units --all --no-legend --plain 'node-cert-agent*'", "")
	n.want("systemctl list-unit-files --no-legend 'node-cert-agent*'", "")
	n.want("ls -l /proc/[0-9]*/exe 2>/dev/null | grep bin/node-cert-agent; ls /run/node-cert-agent-writer.sock "+
		"/run/node-cert-agent-reloader.sock /etc/systemd/system/multi-user.target.wants/"+service+" 2>/dev/null", "")
	n.want("ls "+stateDir+"/identity.pem "+cluster.Fragment, cluster.Fragment+"\n"+stateDir+"/identity.pem")
	n.Run("dpkg", "--purge", "node-cert-agent")
	n.want("ls -d "+stateDir+" /etc/node-cert-agent /run/node-cert-agent 2>/dev/null", "")
	if got := n.stamp(rootCA, cluster.KubeletCA); got != files {
		t.Errorf("removal touched managed files: %s, before %s", got, files)
	}
}

// wantOnly takes the file to hold published certificates, whole, and nothing else. They may be two: what is
// remembered when the agent starts anew only adds, and can be a version behind the disk.
func (n *node) wantOnly(path string, published [][]byte) {
	n.T.Helper()
	rest := n.File(path)
	if len(rest) == 0 {
		n.T.Errorf("%s is empty or missing", path)
	}
	for len(rest) > 0 {
		i := slices.IndexFunc(published, func(p []byte) bool { return bytes.HasPrefix(rest, p) })
		if i < 0 {
			n.T.Errorf("%s holds what was never published: %q", path, rest)
			return
		}
		rest = rest[len(published[i]):]
	}
}

// upgradeDuringARotation has the ControllerConfig change as fast as the API server takes it while dpkg works.
func (n *node) upgradeDuringARotation(deb string) {
	n.T.Helper()
	still, config := n.stamp(rootCA), n.stamp(cluster.Fragment)
	published := [][]byte{n.File(cluster.KubeletCA)}
	done := make(chan error)
	go func() { done <- dpkg(n.Ctx, n.Host, deb) }()
	for going := true; going; {
		select {
		case err := <-done:
			n.Must(err)
			going = false
		default:
			published = append(published, testpki.NewCA("rotating"))
			_, err := n.Store.Patch(n.Ctx, controllerconfig.Spec{KubeAPIServerServingCAData: published[len(published)-1]})
			n.Must(err)
		}
		n.wantOnly(cluster.KubeletCA, published)
	}
	n.T.Logf("%d versions were published during the upgrade", len(published)-1)
	if len(published) < 3 {
		n.T.Error("the upgrade was too quick to prove anything")
	}
	n.AwaitFile(cluster.KubeletCA, published[len(published)-1])
	n.AwaitFile("/run/reader.loaded", published[len(published)-1])
	if got := n.stamp(rootCA); got != still {
		n.T.Errorf("the file that did not change was touched: %s, before %s", got, still)
	}
	if got := n.stamp(cluster.Fragment); got != config {
		n.T.Errorf("the site's configuration was touched: %s, before %s", got, config)
	}
	n.want("systemctl is-active "+service, "active")
	n.want("systemctl is-enabled "+service, "enabled")
}
