// SPDX-License-Identifier: Apache-2.0

// Package apiserver is how a process speaks to one Kubernetes API server: a kubeconfig is read strictly (Parse), a
// Conn is opened with what it says, and behind a Rotating the Conn is swapped while others keep their client.
//
// A server gets no credential of any kind before it is verified against the CAs that a kubeconfig states, that the
// caller adds, or that were found by their pinned keys (Pins); never against the host's own CAs. A kubeconfig is
// refused as a whole if it asks for more than TLS with stated credentials: no program is run, no plug-in loaded, no
// user impersonated, and only regular files of at most 1 MiB are opened. No error holds a secret.
//
// It decides nothing about which identity is used and keeps nothing on disk: that is agent/identity. A kubeconfig of
// somebody else that is to be changed is edited by agent/kubeconfig, which opens no file and connects to nothing.
//
// Of client-go only transport and connrotation are linked: clientcmd and rest would add 2.8 MB to the binary, a
// typed clientset or util/certificate would double it.
//
// Sources: Kubernetes "Organizing cluster access using kubeconfig files"; RFC 7469 section 2.4 (pins);
// k8s.io/client-go/transport, k8s.io/apimachinery util/net SetTransportDefaults.
package apiserver

import (
	"crypto/x509"
	"errors"
	"net/http"
)

// userAgent is how the API server's audit log names us.
const userAgent = "node-cert-agent"

// newClient goes through rt and follows no redirects: they would lead credentials elsewhere.
func newClient(rt http.RoundTripper) *http.Client {
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &http.Client{Transport: rt, CheckRedirect: stay}
}

// Untrusted recognises that a server was refused because no known CA verifies it.
func Untrusted(err error) bool {
	var u x509.UnknownAuthorityError
	return errors.As(err, &u)
}
