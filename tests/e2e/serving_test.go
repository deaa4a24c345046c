// SPDX-License-Identifier: Apache-2.0

//go:build real

package e2e

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/liveness"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/cluster"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane/controllerconfig"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// served has the kubelet asked which certificate it serves.
const served = `apiVersion: config.node-cert-agent.io/v1alpha1
files:
  rootCAData: {path: /etc/kubernetes/serving.crt, verify: [{kind: serving, address: "127.0.0.1:10250"}]}
probe: {timeout: 2s}
trust: {holdRemovals: 0s}
resync: 1s
watch: {retryJitter: 200ms, retryMax: 1s}
`

// servingKey is not beside the certificate: a field's target has no private key beside it.
const servingKey = "/etc/kubelet/serving.key"

// serve changes what the kubelet is started with: its own certificate, and whether it follows the file.
func (n *node) serve(config, follows string) {
	n.T.Helper()
	config += "tlsCertFile: /etc/kubernetes/serving.crt\ntlsPrivateKeyFile: " + servingKey +
		"\nfeatureGates: {ReloadKubeletServerCertificateFile: " + follows + "}\n"
	n.Must(n.Host.PutFile("/etc/kubelet/config.yaml", host.File{Data: []byte(config)}))
}

func TestAServedCertificateIsStaleUntilItsPairIsLoaded(t *testing.T) {
	n := start(t, cluster.Options{Kubelet: true, Config: served})
	root := testpki.New("root", testpki.ECDSA)
	issue := func() testpki.Pair {
		return root.Issue(x509.Certificate{Subject: pkix.Name{CommonName: "kubelet"},
			IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	}
	rotate := func(p testpki.Pair) { n.patch(controllerconfig.Spec{RootCAData: append(p.Cert, root.PEM()...)}) }
	key := func(p testpki.Pair) { n.Must(n.Host.PutFile(servingKey, host.File{Data: p.Key, Mode: 0o600})) }
	use := func() (c report.Consumer) {
		for _, f := range n.Status().Files {
			for _, c := range f.Consumers {
				if f.Field == plan.RootCAData {
					return c
				}
			}
		}
		return c
	}
	awaitUse := func(what string, want liveness.State) {
		t.Helper()
		n.Await(what+" "+string(want), func() bool { return use().State == want })
	}
	config, one, two, three := string(n.File("/etc/kubelet/config.yaml")), issue(), issue(), issue()
	n.create(controllerconfig.Spec{KubeAPIServerServingCAData: root.PEM(), RootCAData: append(one.Cert, root.PEM()...)})
	n.Must(n.StartAgent(n.Ctx))
	n.AwaitFile("/etc/kubernetes/serving.crt", append(one.Cert, root.PEM()...))
	awaitUse("a kubelet that does not run", liveness.Unknown)

	n.serve(config, "false") // as kubelets before 1.31
	key(one)
	n.Run("systemctl", "start", cluster.Kubelet)
	awaitUse("the first pair", liveness.Live)
	rotate(two)
	awaitUse("another certificate", liveness.Stale)
	e := n.AwaitRecord(audit.ConsumerStale, "NODECERT_CONSUMER=serving "+cluster.KubeletAddress)
	if e["PRIORITY"] != "4" || use().Reason != "serves another certificate than the file's" {
		t.Errorf("the record is %v, and the kubelet %+v", e, use())
	}
	key(two)
	v := n.patch(kubeletCA(testpki.NewCA("b"))) // a reconcile goes by, and it is asked again
	n.awaitVersion(v)
	if u := use(); u.State != liveness.Stale {
		t.Errorf("a complete pair that nobody loaded is %+v", u)
	}

	n.serve(config, "true")
	n.Run("systemctl", "restart", cluster.Kubelet)
	awaitUse("the second pair, loaded by a restart", liveness.Live)
	pid := n.pid(cluster.Kubelet)
	rotate(three)
	awaitUse("a certificate without its key", liveness.Stale)
	key(three)
	awaitUse("the third pair, loaded by itself", liveness.Live)
	if n.pid(cluster.Kubelet) != pid {
		t.Error("the kubelet was restarted")
	}
	if got := n.Records(audit.ConsumerStale); got != 2 {
		t.Errorf("%d records say that the kubelet is stale, want 2", got)
	}
	if out := n.Run("node-cert-agent", "status"); !strings.Contains(out, "serving "+cluster.KubeletAddress) {
		t.Errorf("status prints\n%s", out)
	}
}
