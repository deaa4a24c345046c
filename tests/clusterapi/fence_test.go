// SPDX-License-Identifier: Apache-2.0

//go:build real

package clusterapi

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/must"
)

// fenced does as somebody who has the controller's credential.
func fenced(m *management, ns string) {
	m.granted(ns)
	m.cluster(ns, "c1", m.credentials())
	m.machine(ns, "c1", "fenced-1")
	m.secret(ns, "c1-apiserver-etcd-client", map[string][]byte{"tls.crt": []byte("x"), "tls.key": []byte("y"), "z": []byte("z")})
	m.secret(ns, "c1-etcd", map[string][]byte{"tls.crt": []byte("x")})
	// What RBAC does not allow is not what is tested: the policies alone stand in the way.
	m.kubectl("create", "clusterrolebinding", "everything", "--clusterrole=cluster-admin", "--user="+account)
	machine, secret := "node-cert-cluster-api-machines", "node-cert-cluster-api-secrets"
	for _, c := range []struct {
		object, patch, policy string
	}{
		{"machine/fenced-1", `{"metadata":{"annotations":{"machine.cluster.x-k8s.io/certificates-expiry":"2031-01-01T00:00:00Z"}}}`, ""},
		{"machine/fenced-1", `{"metadata":{"annotations":{"cluster.x-k8s.io/delete-machine":""}}}`, machine},
		{"machine/fenced-1", `{"metadata":{"annotations":{"machine.cluster.x-k8s.io/certificates-expiry":null}}}`, ""},
		{"machine/fenced-1", `{"metadata":{"labels":{"x":"y"}}}`, machine},
		{"machine/fenced-1", `{"metadata":{"finalizers":["x.example/y"]}}`, machine},
		{"machine/fenced-1", `{"spec":{"providerID":"x"}}`, machine},
		{"secret/c1-apiserver-etcd-client", `{"data":{"tls.crt":"YQ==","tls.key":"Yg=="}}`, ""},
		{"secret/c1-apiserver-etcd-client", `{"data":{"z":"YQ=="}}`, secret},
		{"secret/c1-apiserver-etcd-client", `{"data":{"z":null}}`, secret},
		{"secret/c1-apiserver-etcd-client", `{"data":{"more":"YQ=="}}`, secret},
		{"secret/c1-apiserver-etcd-client", `{"metadata":{"labels":{"x":"y"}}}`, secret},
		{"secret/c1-apiserver-etcd-client", `{"immutable":true}`, secret},
		{"secret/c1-etcd", `{"data":{"tls.crt":"YQ=="}}`, secret},
		{"secret/c1-kubeconfig", `{"data":{"value":"YQ=="}}`, secret},
	} {
		_, err := m.Kubectl(m.t.Context(), "patch", "-n", ns, c.object, "--type=merge", "--dry-run=server", "-p", c.patch, "--as", account)
		if c.policy == "" && err != nil || c.policy != "" && (err == nil || !strings.Contains(err.Error(), "'"+c.policy+"'")) {
			m.t.Errorf("%s %s: %v", c.object, c.patch, err)
		}
	}
	for _, c := range []string{
		"{apiVersion: v1, kind: Secret, metadata: {name: new-apiserver-etcd-client, namespace: %s}}",
		"{apiVersion: cluster.x-k8s.io/v1beta2, kind: Machine, metadata: {name: new, namespace: %s}, spec: {clusterName: c, " +
			"bootstrap: {dataSecretName: x}, infrastructureRef: {apiGroup: x.example, kind: X, name: x}}}",
	} {
		m.refusedToMake(fmt.Sprintf(c, ns))
	}
	m.kubectl("delete", "clusterrolebinding", "everything")
}

func (m *management) refusedToMake(manifest string) {
	m.t.Helper()
	file := filepath.Join(m.t.TempDir(), "manifest")
	must.Do(m.t, os.WriteFile(file, []byte(manifest), 0o600))
	_, err := m.Kubectl(m.t.Context(), "create", "--dry-run=server", "-f", file, "--as", account)
	if err == nil || !strings.Contains(err.Error(), "'node-cert-cluster-api-") {
		m.t.Errorf("%s: %v", manifest, err)
	}
}
