// SPDX-License-Identifier: Apache-2.0

//go:build real

package e2e

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/cluster"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

const pinsFragment = "/etc/node-cert-agent/config.d/60-pins.yaml"

// clusterInfo is what kubeadm publishes for those who join.
const clusterInfo = `apiVersion: v1
kind: ConfigMap
metadata: {name: cluster-info, namespace: kube-public}
data:
  kubeconfig: |
    apiVersion: v1
    kind: Config
    clusters:
    - {name: "", cluster: {server: "https://elsewhere:6443", certificate-authority-data: %s}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: cluster-info, namespace: kube-public}
rules:
- {apiGroups: [""], resources: [configmaps], resourceNames: [cluster-info], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: cluster-info, namespace: kube-public}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: cluster-info}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: "system:anonymous"}
`

// pin puts the pins of these CAs into the host's configuration.
func (n *node) pin(cas ...*testpki.Authority) {
	n.T.Helper()
	var pins []string
	for _, ca := range cas {
		sum := sha256.Sum256(ca.Cert.RawSubjectPublicKeyInfo)
		pins = append(pins, `"sha256:`+hex.EncodeToString(sum[:])+`"`)
	}
	n.Must(n.Host.PutFile(pinsFragment, host.File{Data: fmt.Appendf(nil,
		"apiVersion: config.node-cert-agent.io/v1alpha1\nbootstrap: {pins: [%s]}\n", strings.Join(pins, ", "))}))
}

func TestAnImageThatKnowsNoCAJoinsByItsPin(t *testing.T) {
	n := start(t, cluster.Options{Bootstrap: true, Config: patientConfig, Plane: controlplane.Options{Anonymous: true}})
	ca := testpki.NewCA("first")
	n.create(kubeletCA(ca))
	other := testpki.New("other", testpki.ECDSA)
	n.Must(n.Plane.Apply(n.Ctx, fmt.Appendf(nil, clusterInfo,
		base64.StdEncoding.EncodeToString(slices.Concat(other.PEM(), n.Plane.CA().PEM())))))
	n.Must(n.MakeToken(n.Ctx, "token1"))
	n.Must(n.PutBareToken(cluster.Server, "10-token", "token1"))
	n.Must(n.StartAgent(n.Ctx))
	n.AwaitRecord(audit.CredentialRefused) // without a pin

	n.pin(other)
	n.Await("a reason", func() bool { return strings.Contains(n.Status().Reason, "the pinned CAs do not verify it") })
	if got := n.requests(); len(got) > 0 {
		t.Errorf("a server that is not verified was asked: %v", got)
	}
	n.pin(n.Plane.CA())
	n.AwaitApproved()
	n.AwaitFile(cluster.KubeletCA, ca)
	n.AwaitRecord(audit.CAPinned)
	n.noSecrets()
}

// serve has the API server present a certificate of this authority, and its chain, as localhost.
func serve(t *testing.T, dir string, ca *testpki.Authority) {
	t.Helper()
	pair := ca.Issue(x509.Certificate{DNSNames: []string{"localhost"}})
	for name, data := range map[string][]byte{"sni.crt": slices.Concat(pair.Cert, ca.PEM()), "sni.key": pair.Key} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAServerOfAnUnknownCAIsTrustedByItsPin(t *testing.T) {
	dir := t.TempDir()
	first, next := testpki.New("first", testpki.ECDSA), testpki.New("next", testpki.ECDSA)
	serve(t, dir, first)
	n := start(t, cluster.Options{Bootstrap: true, Config: patientConfig,
		Plane: controlplane.Options{APIServerArgs: []string{"--tls-sni-cert-key=" + dir + "/sni.crt," + dir +
			"/sni.key:localhost"}}})
	n.Must(n.Host.PutFile("/etc/hosts", host.File{Data: []byte("127.0.0.1 localhost\n")}))
	ca := testpki.NewCA("first")
	n.create(kubeletCA(ca))
	n.Must(n.MakeToken(n.Ctx, "token1"))
	n.Must(n.PutTokenFor(n.Plane, "https://localhost:6443", "10-token", "token1")) // with a CA that does not fit
	n.Must(n.StartAgent(n.Ctx))
	n.Await("a reason", func() bool { return strings.Contains(n.Status().Reason, "unknown authority") })

	n.pin(first) // there is no cluster-info: the chain in the handshake has to do
	n.AwaitApproved()
	n.AwaitFile(cluster.KubeletCA, ca)

	n.Must(n.Plane.StopAPIServer(n.Ctx, syscall.SIGKILL))
	serve(t, dir, next)
	n.Must(n.Plane.StartAPIServer(n.Ctx))
	n.Await("the loss", func() bool {
		i := n.Status().Identity
		return i != nil && strings.Contains(i.Reason, "holds a CA with a pinned key")
	})
	n.pin(first, next)
	n.awaitState("following")
	n.follows()
	if got := n.requests(); len(got) != 1 {
		t.Errorf("requests are %v", got)
	}
	n.noSecrets()
}
