// SPDX-License-Identifier: Apache-2.0

//go:build real

package kubeadm

import (
	"crypto"
	"crypto/tls"
	"net/http"
	"strings"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/cluster"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/must"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testnode"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// rotate follows the page from one CA to the next. The worker is off while the new one comes, and again while the old one
// goes.
func (c *kubeadmCluster) rotate() {
	c.t.Helper()
	c.must(`kubeadm init phase certs ca --cert-dir /root/new
cp new/ca.crt new.crt; cp new/ca.key new.key; cp /etc/kubernetes/pki/ca.key old.key`)
	was, next := c.authority("old"), c.authority("new")
	c.wantKubelet(c.control, next, http.StatusUnauthorized)

	c.worker.Host.Kill()
	c.must(c.page.Block("1. Both CAs in the control plane", 0))
	c.awaitBundles("{.status.counts.certificates}", "2 2")
	c.refused(c.page.Block("2. Wait for every node", 0), "1 of 2 nodes have them; worker has not reported since it was asked")
	c.awaitKubelet(c.control, next, http.StatusOK)
	must.Do(c.t, c.worker.Host.Start(c.worker.Ctx))
	c.must(c.page.Block("2. Wait for every node", 0))
	for _, n := range c.nodes() {
		c.awaitKubelet(n, next, http.StatusOK)
		c.wantKubelet(n, was, http.StatusOK)
		c.awaitKubeconfig(n, was, next)
	}

	c.must("kubectl -n node-cert-agent rollout restart deployment")
	c.must(c.page.Block("3. New certificates", 0))
	c.restartControlPlane()
	c.renewClients(next)

	c.worker.Host.Kill()
	c.must(c.page.Block("4. The old CA out", 0))
	c.control.Await("an API server without the old CA", func() bool {
		status, _ := c.control.Ask(c.control.Ctx, controlAddress+":6443", "/readyz", was.Client("client", "system:masters"))
		return status == http.StatusUnauthorized
	})
	c.await("ok", "kubectl get --raw /readyz") // before it has read its roles it forbids even an administrator
	c.must(c.page.Block("4. The old CA out", 1))
	c.awaitBundles("{.status.counts.held}", "1 1")
	c.awaitBundles("{.status.blocking[*].node}: {.status.blocking[*].reason}",
		"worker: has not reported since it was asked worker: has not reported since it was asked")
	c.refused(c.page.Block("4. The old CA out", 2), "timed out")
	c.wantKubelet(c.control, was, http.StatusOK)
	must.Do(c.t, c.worker.Host.Start(c.worker.Ctx))
	c.must(c.page.Block("4. The old CA out", 2))
	for _, n := range c.nodes() {
		c.awaitKubelet(n, was, http.StatusUnauthorized)
		c.wantKubelet(n, next, http.StatusOK)
		c.awaitKubeconfig(n, next)
	}
}

// undo begins at step 1 with the two CAs exchanged.
func (c *kubeadmCluster) undo() {
	c.t.Helper()
	was := c.authority("old")
	c.must("cp old.crt new.crt; cp old.key new.key")
	c.must(c.page.Block("1. Both CAs in the control plane", 0))
	c.await("2 of 2 nodes have them", c.page.Block("2. Wait for every node", 0))
	for _, n := range c.nodes() {
		c.awaitKubelet(n, was, http.StatusOK)
	}
}

func (c *kubeadmCluster) nodes() []*testnode.Node { return []*testnode.Node{c.control, c.worker} }

// authority is a CA whose certificate and key are on the control-plane host.
func (c *kubeadmCluster) authority(name string) *testpki.Authority {
	c.t.Helper()
	pair, err := tls.X509KeyPair(c.control.File("/root/"+name+".crt"), c.control.File("/root/"+name+".key"))
	must.Do(c.t, err)
	return &testpki.Authority{Cert: pair.Leaf, Key: pair.PrivateKey.(crypto.Signer)}
}

// askKubelet asks the node's kubelet as an administrator with a certificate of the CA.
func (c *kubeadmCluster) askKubelet(n *testnode.Node, by *testpki.Authority) int {
	status, _ := n.Ask(n.Ctx, cluster.KubeletAddress, "/healthz", by.Client("client", "system:masters"))
	return status
}

func (c *kubeadmCluster) awaitKubelet(n *testnode.Node, by *testpki.Authority, want int) {
	c.t.Helper()
	n.Await("the kubelet's answer to a client", func() bool { return c.askKubelet(n, by) == want })
}

func (c *kubeadmCluster) wantKubelet(n *testnode.Node, by *testpki.Authority, want int) {
	c.t.Helper()
	if got := c.askKubelet(n, by); got != want {
		c.t.Fatalf("the kubelet of %s answers %d, want %d", n.Run("hostname"), got, want)
	}
}

// awaitKubeconfig waits until the node's kubelet has read a kubelet.conf with these CAs and no other.
func (c *kubeadmCluster) awaitKubeconfig(n *testnode.Node, of ...*testpki.Authority) {
	c.t.Helper()
	n.Await("the CAs in kubelet.conf, and a kubelet with them", func() bool {
		out, err := n.Host.Run(n.Ctx, "sh", "-euc",
			"sed -n 's/.*certificate-authority-data: //p' /etc/kubernetes/kubelet.conf | base64 -d")
		for _, a := range of {
			out = strings.Replace(out, string(a.PEM()), "", 1)
		}
		status := n.Status()
		return err == nil && strings.TrimSpace(out) == "" && len(status.Units) == 1 && status.Units[0].State == "up to date"
	})
}

// awaitBundles waits until the two NodeBundles say that, separated by a space.
func (c *kubeadmCluster) awaitBundles(path, want string) {
	c.t.Helper()
	c.await("\n"+want+"\n", `echo; for b in kube-root-ca kubelet-clients; do kubectl get nodebundle $b -o jsonpath='`+path+` '
done | sed 's/ $//'; echo`)
}

// refused runs commands that fail, until they say that.
func (c *kubeadmCluster) refused(commands, want string) {
	c.t.Helper()
	c.control.Await(want, func() bool {
		out, err := c.run("TIMEOUT=3s\n" + commands)
		if err == nil {
			c.t.Fatalf("%s\nends well and says\n%s", commands, out)
		}
		return strings.Contains(out, want)
	})
}

// restartControlPlane has the kubelet start the pods again that read certificates when they start.
func (c *kubeadmCluster) restartControlPlane() {
	c.t.Helper()
	c.must(`for name in kube-apiserver kube-controller-manager kube-scheduler; do
  for id in $(ctr -n k8s.io containers ls -q 'labels."io.kubernetes.container.name"=='$name); do
    ctr -n k8s.io tasks kill -s SIGKILL $id || true
  done
done`)
	c.await("ok", "kubectl get --raw /readyz")
}

// renewClients gives the kubelets and the agents certificates of the CA that signs now. An agent would ask for its own within a
// week; a token of the new CA has it ask now, and because its identity is in use, somebody has to insist.
func (c *kubeadmCluster) renewClients(next *testpki.Authority) {
	c.t.Helper()
	const step = "3. New certificates"
	c.must(c.install.Block("A token", 0))
	token := c.control.File("/root/token.kubeconfig")
	for _, n := range c.nodes() {
		c.must("NODE=" + n.Run("hostname") + "\n" + c.page.Block(step, 1))
		must.Do(c.t, n.Host.PutFile("/root/kubelet.conf", host.File{Data: c.control.File("/root/kubelet.conf"), Mode: 0o600}))
		n.Run("sh", "-euc", "cd /root\n"+c.page.Block(step, 2))
		must.Do(c.t, n.Host.PutFile(cluster.BootstrapDir+"/20-token.kubeconfig", host.File{Data: token, Mode: 0o600}))
		must.Do(c.t, n.Host.PutFile("/root/next.crt", host.File{Data: next.PEM()}))
	}
	for _, n := range c.nodes() {
		n.Await("an identity of the new CA", func() bool {
			_, _ = c.run("kubectl get csr --no-headers | awk '/node-cert-agent.*Pending/ {print $1}' | " +
				"xargs -r -n 1 kubectl node-certs approve --force")
			_, err := n.Host.Run(n.Ctx, "openssl", "verify", "-CAfile", "/root/next.crt", "/var/lib/node-cert-agent/identity.pem")
			return err == nil
		})
	}
}
