// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/transport"
	"k8s.io/client-go/util/connrotation"
)

// maxHeader, in bytes, bounds the header of an answer, also of a server that nothing verifies yet.
const maxHeader = 64 << 10

// link is one way to speak to one API server as somebody, over connections of its own: no other link
// has ever used them, so that what an answer says of these credentials is true.
type link struct {
	config   config
	server   url.URL
	rt       http.RoundTripper
	base     *http.Transport
	tracking *connrotation.Dialer
}

// newLink connects to nothing yet. client-go's own cache of transports is not used: it would share
// connections, and does not close them when a certificate changes.
func newLink(c config) (*link, error) {
	secure, err := c.tls()
	if err != nil {
		return nil, err
	}
	dial := c.dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	l := &link{config: c, server: c.server, tracking: connrotation.NewDialer(dial)}
	if l.server.Path == "" {
		l.server.Path = "/" // or JoinPath makes a relative path
	}
	proxy := http.ProxyFromEnvironment
	if c.transport.Proxy != nil {
		proxy = c.transport.Proxy
	}
	// SetTransportDefaults adds the HTTP/2 health check, without which a dead connection lingers.
	l.base = utilnet.SetTransportDefaults(&http.Transport{Proxy: proxy, TLSHandshakeTimeout: 10 * time.Second, TLSClientConfig: secure,
		DialContext: l.tracking.DialContext, DisableCompression: c.transport.DisableCompression, MaxResponseHeaderBytes: maxHeader})
	if l.rt, err = transport.HTTPWrappersForConfig(&c.transport, l.base); err != nil {
		return nil, fmt.Errorf("its credentials cannot be used: %v", err)
	}
	return l, nil
}

// tls says how the server is verified, and with which certificate we are. Where no CA is known no server
// is: the CAs of the host, which TLS would fall back to, are for other purposes.
func (c config) tls() (*tls.Config, error) {
	out, err := transport.TLSConfigFor(&c.transport)
	if err != nil {
		return nil, fmt.Errorf("its certificates or key cannot be used: %v", err)
	}
	if out == nil {
		out = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if out.RootCAs == nil {
		out.RootCAs = x509.NewCertPool()
	}
	out.RootCAs.AppendCertsFromPEM(c.pinned)
	out.RootCAs.AppendCertsFromPEM(c.trusted)
	clock, floor := c.clock, latest(c.floor, eldest(authorities(slices.Concat(c.transport.TLS.CAData, c.pinned))))
	if clock == nil {
		clock = time.Now
	}
	// A clock that is behind what has happened must not make a server's certificate look as if it had not
	// begun. Time only moves forward here: what has expired by the clock stays so.
	out.Time = func() time.Time { return latest(clock(), floor) }
	return out, nil
}

// close ends every connection, whatever is under way on it.
func (l *link) close() {
	l.base.CloseIdleConnections()
	l.tracking.CloseAll()
}
