// SPDX-License-Identifier: Apache-2.0

// Package identity is how the agent authenticates to the API server. It is the only package of the
// agent that knows client-go, and takes from it what is hard to get right: TLS with certificates,
// trust and tokens that are read again when their files change, proxies, and the HTTP/2 health check
// without which a dead connection lingers for a quarter of an hour.
//
// For now an identity is a kubeconfig that something else maintains. It is read by code of our own
// and refused as a whole if it asks for anything but TLS to a server that is verified against stated
// CAs: no program is run, no plug-in loaded, no user impersonated, and no library sees the file
// before it has passed. What it holds never appears in an error.
//
// Only k8s.io/client-go/transport is linked: clientcmd and rest would add 2.8 MB to the binary.
//
// Sources: Kubernetes "Organizing cluster access using kubeconfig files" and the v1 Config reference;
// k8s.io/client-go/transport, k8s.io/apimachinery/pkg/util/net SetTransportDefaults.
package identity

import (
	"fmt"
	"net/http"
	"net/url"

	"k8s.io/client-go/transport"
)

// userAgent is how the API server's audit log names us.
const userAgent = "node-cert-agent"

// Identity is a way to speak to one API server as somebody.
type Identity struct {
	client *http.Client
	server url.URL
}

// FromKubeconfig reads the kubeconfig at path; relative paths in it start at its directory. Accepted
// are a server by https, its CAs, optionally tls-server-name and proxy-url, and as credentials
// client-certificate with client-key, or token, or tokenFile, as data or as files. Files are read
// again when they change; the kubeconfig itself is not. An error names the file, the line and the
// field, says what is accepted, and holds no value from the file except paths.
func FromKubeconfig(path string) (*Identity, error) {
	c, err := read(path)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %v", path, err)
	}
	rt, err := transport.New(&c.transport)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: its certificates or key cannot be used: %v", path, err)
	}
	return &Identity{server: c.server, client: &http.Client{Transport: rt,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}, nil
}

// HTTPClient authenticates, verifies the server, does not follow redirects and has no overall
// timeout. All calls return the same client.
func (i *Identity) HTTPClient() *http.Client { return i.client }

// Server is the API server's base URL. The caller owns it.
func (i *Identity) Server() *url.URL {
	u := i.server
	return &u
}
