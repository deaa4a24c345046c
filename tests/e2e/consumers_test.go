// SPDX-License-Identifier: Apache-2.0

//go:build real

package e2e

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/liveness"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/cluster"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane/controllerconfig"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// Where the servers of this story listen on the host; etcd also serves the API server, without TLS.
const (
	apiServerAddress = "127.0.0.1:7443"
	etcdAddress      = "127.0.0.1:2378"
)

const etcdUnit = `[Service]
Type=notify
ExecStart=/usr/local/bin/etcd --name=e --data-dir=/var/lib/etcd --log-level=warn --listen-client-urls=https://127.0.0.1:2378,http://127.0.0.1:2379 \
 --advertise-client-urls=https://127.0.0.1:2378 --listen-peer-urls=http://127.0.0.1:2380 --initial-advertise-peer-urls=http://127.0.0.1:2380 \
 --initial-cluster=e=http://127.0.0.1:2380 --cert-file=/etc/pair/server.crt --key-file=/etc/pair/server.key --client-cert-auth --trusted-ca-file=` + cluster.KubeletCA + `
`

const apiServerUnit = `[Unit]
Requires=etcd.service
After=etcd.service
[Service]
Type=notify
ExecStart=/usr/local/bin/kube-apiserver --bind-address=127.0.0.1 --advertise-address=127.0.0.1 --secure-port=7443 --etcd-servers=http://127.0.0.1:2379 \
 --tls-cert-file=/etc/pair/server.crt --tls-private-key-file=/etc/pair/server.key --anonymous-auth=false --authorization-mode=RBAC \
 --client-ca-file=` + cluster.KubeletCA + ` --requestheader-client-ca-file=/etc/pair/front-proxy.crt --endpoint-reconciler-type=none --service-cluster-ip-range=10.0.0.0/24 \
 --service-account-issuer=https://kubernetes.default.svc --service-account-key-file=/etc/pair/server.crt --service-account-signing-key-file=/etc/pair/server.key
`

// consumed has everybody asked: an API server that announces its front proxy's CA too, whose own
// certificate verifies with the root CAs, and etcd, which knows what it started with.
const consumed = `apiVersion: config.node-cert-agent.io/v1alpha1
files:
  kubeAPIServerServingCAData:
    verify:
    - {kind: clientCA, address: "127.0.0.1:7443", others: true}
    - {kind: clientCA, address: "127.0.0.1:2378"}
  rootCAData: {verify: [{kind: apiserver, address: "127.0.0.1:7443"}]}
probe: {timeout: 10s}
trust: {holdRemovals: 0s}
resync: 1s
watch: {retryJitter: 200ms, retryMax: 1s}
`

func TestAnAPIServerIsSeenToTakeARotationAndEtcdToOweARestart(t *testing.T) {
	root := testpki.New("root", testpki.ECDSA)
	server := root.Issue(x509.Certificate{Subject: pkix.Name{CommonName: "server"}, DNSNames: []string{"localhost"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	binaries, err := controlplane.Build(t.Context(), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	servers := filepath.Join(binaries.Dir, "servers")
	n := start(t, cluster.Options{Config: consumed, Host: host.Options{
		Nspawn: []string{"--bind-ro=" + servers + ":/usr/local/bin/etcd",
			"--bind-ro=" + servers + ":/usr/local/bin/kube-apiserver"},
		Files: map[string]host.File{
			"/etc/systemd/system/etcd.service":           {Data: []byte(etcdUnit)},
			"/etc/systemd/system/kube-apiserver.service": {Data: []byte(apiServerUnit)},
			"/etc/pair/server.crt":                       {Data: server.Cert},
			"/etc/pair/server.key":                       {Data: server.Key, Mode: 0o600},
			"/etc/pair/front-proxy.crt":                  {Data: testpki.NewCA("front-proxy")},
		}}})
	a, b := testpki.New("a", testpki.ECDSA), testpki.New("b", testpki.ECDSA)
	n.create(controllerconfig.Spec{KubeAPIServerServingCAData: bundle(a), RootCAData: bundle(root)})
	n.Must(n.StartAgent(n.Ctx))
	n.AwaitFile(cluster.KubeletCA, bundle(a))
	n.Run("systemctl", "start", "kube-apiserver.service")
	n.awaitAnswer(apiServerAddress, "/readyz", a, http.StatusOK)
	n.awaitUse(apiServerAddress, liveness.Live)
	n.awaitUse(etcdAddress, liveness.Live)
	n.awaitFieldUse(plan.RootCAData, liveness.Live)
	apiServer, etcd := n.pid("kube-apiserver.service"), n.pid("etcd.service")

	n.patch(kubeletCA(bundle(b)))
	n.awaitAnswer(apiServerAddress, "/readyz", b, http.StatusOK)
	n.awaitAnswer(apiServerAddress, "/readyz", a, http.StatusUnauthorized)
	n.awaitUse(apiServerAddress, liveness.Live)
	if c := n.awaitUse(etcdAddress, liveness.Stale); c.Reason != "announces 0 of the file's 1 CAs" {
		t.Errorf("etcd is %+v", c)
	}
	e := n.AwaitRecord(audit.ConsumerStale, "NODECERT_CONSUMER=clientCA "+etcdAddress)
	if e["PRIORITY"] != "4" || e["NODECERT_PATH"] != cluster.KubeletCA {
		t.Errorf("the record is %v", e)
	}
	n.awaitMetric(`node_cert_agent_consumer_stale{field="kubeAPIServerServingCAData",kind="clientCA",address="127.0.0.1:2378"} 1`)
	if out := n.Run("node-cert-agent", "status"); !strings.Contains(out, "in place, stale") {
		t.Errorf("status prints\n%s", out)
	}
	if n.pid("etcd.service") != etcd || n.pid("kube-apiserver.service") != apiServer {
		t.Error("a server was restarted")
	}

	n.Run("systemctl", "restart", "--no-block", "etcd.service") // as the administrator does
	n.awaitUse(etcdAddress, liveness.Live)
	if got := n.Records(audit.ConsumerStale); got != 1 {
		t.Errorf("%d records say that somebody is stale, want 1", got)
	}

	other := testpki.New("other", testpki.ECDSA) // which did not issue what the API server serves
	n.patch(controllerconfig.Spec{RootCAData: bundle(other)})
	n.awaitFieldUse(plan.RootCAData, liveness.Stale)
	n.AwaitRecord(audit.ConsumerStale, "NODECERT_CONSUMER=apiserver "+apiServerAddress)
	n.patch(controllerconfig.Spec{RootCAData: bundle(other, root)})
	n.awaitFieldUse(plan.RootCAData, liveness.Live)
}

// awaitFieldUse waits until all who are asked about a managed file stand so with it.
func (n *node) awaitFieldUse(field plan.Field, want liveness.State) {
	n.T.Helper()
	n.Await(string(field)+" "+string(want), func() bool {
		for _, f := range n.Status().Files {
			if f.Field == field {
				return f.Use() == want
			}
		}
		return false
	})
}
