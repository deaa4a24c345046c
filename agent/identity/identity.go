// SPDX-License-Identifier: Apache-2.0

// Package identity is how the agent authenticates to the API server: from a bootstrap credential to a
// certificate of its own, its renewal, and back whenever it is lost (Keeper); or a kubeconfig that
// something else maintains (FromKubeconfig). It owns the one transport through which everybody else
// speaks, and exchanges what is behind it without a restart.
//
// It promises that a working identity stays until its successor has been proven on a fresh connection,
// that one key waits in one request however long nobody approves it, and that no bootstrap credential
// is consumed before the identity got with it is durable and proven. What is missing is a state with a
// reason. It decides nothing about files: credentials come from, and are consumed through, Bootstrap.
//
// A server gets no credential of any kind before it is verified against the CAs that a kubeconfig states
// or that were found by their pinned keys; where the object announces another cluster, only our own
// certificate asks there. Kubeconfigs are read by code of our own and refused as a whole if they ask for
// more than that: no program is run, no plug-in loaded, no user impersonated. No secret is in an error.
//
// Of client-go only transport and connrotation are linked: clientcmd and rest would add 2.8 MB to the
// binary, a typed clientset or util/certificate would double it.
//
// Sources: Kubernetes "Organizing cluster access using kubeconfig files", the reference of
// CertificateSigningRequest and SelfSubjectReview; RFC 7469 section 2.4 (pins); k8s.io/client-go/transport,
// k8s.io/apimachinery util/net SetTransportDefaults.
package identity

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
)

// userAgent is how the API server's audit log names us.
const userAgent = "node-cert-agent"

// Identity is a way to speak to one API server as somebody.
type Identity struct {
	client *http.Client
	server url.URL
	config config
}

// FromKubeconfig reads the kubeconfig at path; relative paths in it start at its directory. Accepted
// are a server by https, its CAs, optionally tls-server-name and proxy-url, and as credentials
// client-certificate with client-key, or token, or tokenFile, as data or as regular files of at most 1 MiB.
// Files are read again when they change; the kubeconfig itself is not. An error names the file, the line and the
// field, says what is accepted, and holds no value from the file except paths.
func FromKubeconfig(path string) (*Identity, error) {
	c, err := read(path)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %v", path, err)
	}
	rt, err := newRefreshing(c)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: its certificates or key cannot be used: %v", path, err)
	}
	return &Identity{config: c, server: c.server, client: newClient(rt)}, nil
}

// Snapshot is FromKubeconfig for a short look: every file is read now and never again, so that the process may
// give up the right to read them before it connects.
func Snapshot(path string) (*Identity, error) {
	c, err := read(path)
	if err == nil {
		err = c.inline()
	}
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %v", path, err)
	}
	l, err := newLink(c)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %v", path, err)
	}
	return &Identity{config: c, server: c.server, client: newClient(l.rt)}, nil
}

// Stored is the identity that a Keeper keeps in dir, for a short look beside it: it is neither renewed
// nor changed. The error matches fs.ErrNotExist if there is none.
func Stored(dir Dir, node string) (*Identity, error) {
	data, err := dir.ReadFile(currentFile)
	if err != nil {
		return nil, err
	}
	g, err := decodeGeneration(data, node)
	if err != nil {
		return nil, fmt.Errorf("%s %v", currentFile, err)
	}
	c, err := g.config()
	if err != nil {
		return nil, fmt.Errorf("%s %v", currentFile, err)
	}
	l, err := newLink(c)
	if err != nil {
		return nil, fmt.Errorf("%s: %v", currentFile, err)
	}
	return &Identity{config: c, client: newClient(l.rt), server: l.server}, nil
}

// Reset sets the identity in dir aside, the pending key included, so that the next start begins anew
// with a bootstrap credential. It says what was set aside, and deletes nothing but what an earlier
// Reset had set aside. What was set aside goes once another identity has been proven.
func Reset(dir Dir) (aside []string, err error) {
	for _, name := range allFiles {
		switch err := dir.Rename(name, name+reset); {
		case err == nil:
			aside = append(aside, name+reset)
		case !errors.Is(err, fs.ErrNotExist):
			return aside, fmt.Errorf("setting %s aside: %v", name, err)
		}
	}
	return aside, nil
}

// HTTPClient authenticates, verifies the server, does not follow redirects and has no overall
// timeout. All calls return the same client.
func (i *Identity) HTTPClient() *http.Client { return i.client }

// Server is the API server's base URL. The caller owns it.
func (i *Identity) Server() *url.URL {
	u := i.server
	return &u
}
