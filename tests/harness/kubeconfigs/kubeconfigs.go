// SPDX-License-Identifier: Apache-2.0

// Package kubeconfigs writes kubeconfigs for tests: the two kinds that a host has beside those with a
// certificate, which package controlplane makes.
//
// It judges nothing, and what is odd about a kubeconfig belongs to the test that wants it so.
package kubeconfigs

import (
	"encoding/base64"
	"fmt"
)

// Token is one with a bearer token for a server. ca is its CA in PEM, or nil for a host that has a pin.
func Token(server string, ca []byte, token string) []byte {
	trust := ""
	if ca != nil {
		trust = ", certificate-authority-data: " + base64.StdEncoding.EncodeToString(ca)
	}
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters:
- {name: c, cluster: {server: %q%s}}
users:
- {name: u, user: {token: %s}}
contexts:
- {name: x, context: {cluster: c, user: u}}
current-context: x
`, server, trust, token)
}

// Node is one as the machine config server of OpenShift gives it to a node, with what a program that writes
// it anew would lose.
func Node(ca []byte, token string) []byte {
	return fmt.Appendf(nil, `# of the first boot
apiVersion: v1
kind: Config
clusters:
- cluster:
    certificate-authority-data: %s # api-int
    server: https://api-int.example.test:6443
    x-unknown: {a: [1, 2]}
  name: local
contexts:
- context:
    cluster: local
    user: kubelet
  name: kubelet
current-context: kubelet
preferences: {}
users:
- name: kubelet
  user:
    token: %s
`, base64.StdEncoding.EncodeToString(ca), token)
}
