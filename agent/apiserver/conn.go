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
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/transport"
	"k8s.io/client-go/util/connrotation"

	"github.com/node-cert-agent/node-cert-agent/agent/reply"
)

const (
	// maxHeader, in bytes, bounds the header of an answer, also of a server that nothing verifies yet.
	maxHeader = 64 << 10
	// maxAnswer, in bytes, bounds what is read of an answer that nobody looks at.
	maxAnswer = 1 << 20
)

// Conn is one way to speak to one API server as somebody, over connections of its own: no other Conn has ever used
// them, so that what an answer says of these credentials is true.
type Conn struct {
	config   Config
	client   *http.Client
	server   url.URL
	tracking *connrotation.Dialer // nil if client-go follows the files that a kubeconfig names
}

// Open connects to nothing yet. client-go's own cache of transports is not used: it would share connections, and
// does not close them when a certificate changes. An error says what of the credentials cannot be used.
func (c Config) Open() (*Conn, error) {
	secure, err := c.tls()
	if err != nil {
		return nil, err
	}
	dial := c.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	tracking := connrotation.NewDialer(dial)
	proxy := http.ProxyFromEnvironment
	if c.transport.Proxy != nil {
		proxy = c.transport.Proxy
	}
	// SetTransportDefaults adds the HTTP/2 health check, without which a dead connection lingers.
	base := utilnet.SetTransportDefaults(&http.Transport{
		Proxy: proxy, TLSHandshakeTimeout: 10 * time.Second, TLSClientConfig: secure, DialContext: tracking.DialContext,
		DisableCompression: c.transport.DisableCompression, MaxResponseHeaderBytes: maxHeader,
	})
	rt, err := transport.HTTPWrappersForConfig(&c.transport, base)
	if err != nil {
		return nil, fmt.Errorf("its credentials cannot be used: %v", err)
	}
	return newConn(c, rt, tracking), nil
}

func newConn(c Config, rt http.RoundTripper, tracking *connrotation.Dialer) *Conn {
	conn := &Conn{config: c, client: newClient(rt), server: c.server, tracking: tracking}
	if conn.server.Path == "" {
		conn.server.Path = "/" // or JoinPath makes a relative path
	}
	return conn
}

// FromKubeconfig reads the kubeconfig at path; relative paths in it start at its directory. Accepted
// are a server by https, its CAs, optionally tls-server-name and proxy-url, and as credentials
// client-certificate with client-key, or token, or tokenFile, as data or as regular files of at most 1 MiB.
// Files are read again when they change; the kubeconfig itself is not. An error names the file, the line and the
// field, says what is accepted, and holds no value from the file except paths.
func FromKubeconfig(path string) (*Conn, error) {
	c, err := read(path)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %v", path, err)
	}
	rt, err := newRefreshing(c)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: its certificates or key cannot be used: %v", path, err)
	}
	return newConn(c, rt, nil), nil
}

// Snapshot is FromKubeconfig for a short look: every file is read now and never again, so that the process may
// give up the right to read them before it connects.
func Snapshot(path string) (*Conn, error) {
	c, err := read(path)
	if err == nil {
		err = c.inline()
	}
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %v", path, err)
	}
	conn, err := c.Open()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %v", path, err)
	}
	return conn, nil
}

// HTTPClient authenticates, verifies the server, does not follow redirects and has no overall timeout. All calls
// return the same client.
func (c *Conn) HTTPClient() *http.Client { return c.client }

// Server is the API server's base URL, with a path. The caller owns it.
func (c *Conn) Server() *url.URL {
	u := c.server
	return &u
}

// Certificate is the client certificate in PEM, without its key; nil if there is none or it cannot be read.
func (c *Conn) Certificate() []byte {
	t := c.config.transport.TLS
	data := t.CertData
	if len(data) == 0 && t.CertFile != "" {
		data, _ = readFile(t.CertFile) // what cannot be read is said by whoever connects
	}
	return bytes.Clone(data)
}

// Trusting opens the same with these CAs in PEM beside those that it was opened with.
func (c *Conn) Trusting(bundle []byte) (*Conn, error) {
	other := c.config
	other.Trusted = bundle
	return other.Open()
}

// Prove connects anew to the API server, with these CAs in PEM and no others, and says why the server cannot be
// verified so, or nothing if it can. It fails if nobody answers. No credential is sent.
func (c *Conn) Prove(ctx context.Context, bundle []byte) (why string, err error) {
	nobody := c.config
	nobody.Pinned, nobody.Trusted = nil, nil
	nobody.transport = transport.Config{UserAgent: userAgent, Proxy: c.config.transport.Proxy,
		TLS: transport.TLSConfig{CAData: bundle, ServerName: c.config.transport.TLS.ServerName}}
	conn, err := nobody.Open()
	if err != nil {
		return "", err
	}
	defer conn.Close()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, conn.server.JoinPath("version").String(), nil)
	if err != nil {
		return "", err
	}
	// Whatever is answered, the server was verified before.
	res, err := conn.client.Do(req)
	if Untrusted(err) {
		return reply.Fact(err), nil
	}
	if err != nil {
		return "", errors.New(reply.Fact(err))
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, maxAnswer))
	_ = res.Body.Close()
	return "", nil
}

// CloseIdle ends the connections on which nothing is under way.
func (c *Conn) CloseIdle() { utilnet.CloseIdleConnectionsFor(c.client.Transport) }

// Close ends every connection of a Conn that Open made, whatever is under way on it.
func (c *Conn) Close() {
	c.CloseIdle()
	if c.tracking != nil {
		c.tracking.CloseAll()
	}
}

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
