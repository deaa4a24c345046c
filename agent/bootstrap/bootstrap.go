// SPDX-License-Identifier: Apache-2.0

// Package bootstrap is what a bootstrap credential is, for the three who handle one: the writer hands it out and takes
// it out of use, the protocol between writer and agent carries it, and agent/identity asks for a certificate with it.
//
// It holds no file and makes no connection. Content has no text form and no JSON form; the protocol sends it beside the
// JSON of a Credential.
package bootstrap

import (
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/secret"
)

// Kubelet is the name of the one Credential that is no kubeconfig but the kubelet's client certificate and its key in
// PEM, for the cluster that is known already. It is never consumed.
const Kubelet = "the kubelet"

// ID tells one credential from another, and from what the same file held before. It is kept in identity.pem.
type ID struct {
	Name string `json:"name"`
	// Digest is of the content. It is what can be consumed by; zero is nothing that can be.
	Digest plan.Digest `json:"digest,omitzero"`
}

// Credential is a kubeconfig with a token or a certificate, or Kubelet.
type Credential struct {
	ID
	Content secret.Bytes `json:"-"`
	// Refused says why there is no content: the file's owner or mode, or what it is.
	Refused string `json:"refused,omitempty"`
}
