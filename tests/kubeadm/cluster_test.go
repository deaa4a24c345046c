// SPDX-License-Identifier: Apache-2.0

//go:build real

package kubeadm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/cluster"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/must"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/runbook"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testnode"
)

const (
	controlAddress = "10.99.0.1"
	workerAddress  = "10.99.0.2"
	hosts          = "127.0.0.1 localhost\n" + controlAddress + " control\n" + workerAddress + " worker\n" +
		"10.99.0.3 control-3\n10.99.0.4 control-4\n"
)

// shape is what a cluster is like. Its certificates live that long, if it is not 0, and it has so many control-plane
// hosts, if that is more than one.
type shape struct {
	life   time.Duration
	planes int
}

// quick is beside what the page says, for a test that waits for nobody's convenience.
const quick = `apiVersion: config.node-cert-agent.io/v1alpha1
actions: {batchWindow: 200ms, randomizedDelay: 0s}
trust: {holdRemovals: 1s}
bootstrap: {pollInterval: 1s, idlePollInterval: 1s}
watch: {retryJitter: 200ms, retryMax: 1s}
`

// kubeadmCluster is a cluster that kubeadm made, and the page about it.
type kubeadmCluster struct {
	t               testing.TB
	control, worker *testnode.Node
	// others are more control-plane hosts.
	others        []*testnode.Node
	page, install runbook.Page
}

// start boots the hosts, and has kubeadm make a cluster of them.
func start(t testing.TB, like shape) *kubeadmCluster {
	t.Helper()
	b, err := controlplane.Build(t.Context(), t.Output())
	must.Do(t, err)
	tars, installed := images(t, b), t.TempDir()
	trees, err := cluster.Trees(t.Context(), installed)
	must.Do(t, err)
	plugin := filepath.Join(t.TempDir(), "kubectl-node_certs")
	must.Do(t, cluster.Build(t.Context(), plugin))
	manifests, err := filepath.Abs("../../packaging/kubernetes")
	must.Do(t, err)
	patches, err := filepath.Abs("testdata/patches")
	must.Do(t, err)
	boot := func(name string, binds ...string) *testnode.Node {
		o := host.Options{Name: name, Trees: append([]string{"testdata/host"}, trees...),
			Files:  map[string]host.File{"/etc/hosts": {Data: []byte(hosts)}},
			Enable: []string{"containerd.service", "kubelet.service"},
			// Snapshots are overlays, which cannot lie on the host's own disk, for that is one.
			Nspawn: []string{"--bind=" + t.TempDir() + ":/var/lib/containerd",
				"--bind-ro=" + filepath.Join(b.Dir, "kubelet") + ":/usr/bin/kubelet",
				"--bind-ro=" + filepath.Join(b.Dir, "kubeadm") + ":/usr/bin/kubeadm"}}
		for _, bind := range binds {
			o.Nspawn = append(o.Nspawn, "--bind-ro="+bind)
		}
		return testnode.Boot(t, o)
	}
	c := &kubeadmCluster{t: t, page: runbook.Read(t, "../../docs/usage/kubeadm.md"),
		install: runbook.Read(t, "../../docs/usage/install.md")}
	c.worker = boot("worker")
	plane := []string{tars + ":/images", patches + ":/patches", manifests + ":/root/packaging/kubernetes",
		filepath.Join(b.Dir, "kubectl") + ":/usr/bin/kubectl", plugin + ":/usr/bin/kubectl-node_certs"}
	c.control = boot("control", plane...)
	ends := []host.End{{Host: c.control.Host, Address: controlAddress}, {Host: c.worker.Host, Address: workerAddress}}
	for i := 3; i < like.planes+2; i++ {
		n := boot(fmt.Sprintf("control-%d", i), plane...)
		c.others = append(c.others, n)
		ends = append(ends, host.End{Host: n.Host, Address: fmt.Sprintf("10.99.0.%d", i)})
	}
	must.Do(t, host.Link(t.Context(), ends...))
	c.init(like)
	return c
}

// init has kubeadm make the control plane, and the worker join it.
func (c *kubeadmCluster) init(like shape) {
	c.t.Helper()
	config, err := os.ReadFile("testdata/control-plane.yaml")
	must.Do(c.t, err)
	if like.life > 0 {
		config = shorten(config, like.life)
	}
	if like.planes > 1 {
		config = together(config)
	}
	version := c.control.Run("kubeadm", "version", "-o", "short")
	must.Do(c.t, c.control.Host.PutFile("/root/kubeadm.yaml",
		host.File{Data: []byte(strings.ReplaceAll(string(config), "@VERSION@", version))}))
	load := `ctr -n k8s.io images import /images/kubernetes.tar
ctr -n k8s.io images import --base-name ` + controller + ` /images/controller.tar
for image in $(kubeadm config images list --kubernetes-version ` + version + `); do
  ctr -n k8s.io images tag ` + kubernetes + ` $image
done
`
	c.must(load + `kubeadm init --config kubeadm.yaml --skip-phases=addon --ignore-preflight-errors=all
kubeadm token create --print-join-command >join`)
	join := strings.Fields(string(c.control.File("/root/join")))
	c.worker.Run(append(join, "--ignore-preflight-errors=all")...)
	for i, n := range c.others {
		c.copyCAs(n)
		n.Run("sh", "-euc", load)
		n.Run(append(join, "--ignore-preflight-errors=all", "--control-plane", "--patches=/patches",
			fmt.Sprintf("--apiserver-advertise-address=10.99.0.%d", i+3))...)
	}
}

// copyCAs gives another control-plane host what all of them share.
func (c *kubeadmCluster) copyCAs(to *testnode.Node) {
	c.t.Helper()
	for _, name := range []string{"ca.crt", "ca.key", "sa.key", "sa.pub", "front-proxy-ca.crt", "front-proxy-ca.key", "etcd/ca.crt",
		"etcd/ca.key"} {
		name = "/etc/kubernetes/pki/" + name
		must.Do(c.t, to.Host.PutFile(name, host.File{Data: c.control.File(name), Mode: 0o600}))
	}
}

// together is the configuration for several control-plane hosts, of which one leads.
func together(config []byte) []byte {
	const cluster = "kind: ClusterConfiguration\n"
	text := strings.ReplaceAll(string(config), `[{name: leader-elect, value: "false"}]`, "[]")
	return []byte(strings.ReplaceAll(text, cluster, cluster+"controlPlaneEndpoint: "+controlAddress+":6443\n"))
}

// shorten makes the certificates of a cluster live that long. A kubelet waits longer and longer before it starts again
// what has ended often: what is restarted each year is restarted every few minutes here.
func shorten(config []byte, life time.Duration) []byte {
	const cluster, kubelet = "kind: ClusterConfiguration\n", "kind: KubeletConfiguration\n"
	return []byte(strings.NewReplacer(cluster, cluster+"certificateValidityPeriod: "+life.String()+"\n", kubelet, kubelet+
		"featureGates: {KubeletCrashLoopBackOffMax: true}\ncrashLoopBackOff: {maxContainerRestartPeriod: 1s}\n").Replace(
		string(config)))
}

// run runs commands on the control-plane host as its administrator. What they print is the answer.
func (c *kubeadmCluster) run(commands string) (string, error) {
	return c.control.Host.Run(c.control.Ctx, "sh", "-euc",
		"exec 2>&1; cd /root; export KUBECONFIG=/etc/kubernetes/admin.conf TIMEOUT=3m\n"+commands)
}

func (c *kubeadmCluster) must(commands string) string {
	c.t.Helper()
	out, err := c.run(commands)
	if err != nil {
		c.t.Fatalf("%s\n%v\n%s", commands, err, out)
	}
	return strings.TrimSpace(out)
}

// await waits until the commands succeed and print that, among other things.
func (c *kubeadmCluster) await(want, commands string) {
	c.t.Helper()
	out := ""
	defer func() {
		if c.t.Failed() {
			c.t.Logf("%s last printed\n%s", commands, out)
		}
	}()
	c.control.Await(want, func() bool {
		var err error
		out, err = c.run(commands)
		return err == nil && strings.Contains(out, want)
	})
}
