// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/transport"
	"k8s.io/client-go/util/connrotation"
)

// link is one way to speak to one API server as somebody, over connections of its own: no other link
// has ever used them, so that what an answer says of these credentials is true.
type link struct {
	server   url.URL
	rt       http.RoundTripper
	base     *http.Transport
	tracking *connrotation.Dialer
}

// newLink connects to nothing yet. client-go's own cache of transports is not used: it would share
// connections, and does not close them when a certificate changes.
func newLink(c config) (*link, error) {
	tls, err := transport.TLSConfigFor(&c.transport)
	if err != nil {
		return nil, fmt.Errorf("its certificates or key cannot be used: %v", err)
	}
	l := &link{server: c.server, tracking: connrotation.NewDialer((&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext)}
	if l.server.Path == "" {
		l.server.Path = "/" // or JoinPath makes a relative path
	}
	proxy := http.ProxyFromEnvironment
	if c.transport.Proxy != nil {
		proxy = c.transport.Proxy
	}
	// SetTransportDefaults adds the HTTP/2 health check, without which a dead connection lingers.
	l.base = utilnet.SetTransportDefaults(&http.Transport{Proxy: proxy, TLSHandshakeTimeout: 10 * time.Second, TLSClientConfig: tls,
		DialContext: l.tracking.DialContext, DisableCompression: c.transport.DisableCompression})
	if l.rt, err = transport.HTTPWrappersForConfig(&c.transport, l.base); err != nil {
		return nil, fmt.Errorf("its credentials cannot be used: %v", err)
	}
	return l, nil
}

// close ends every connection, whatever is under way on it.
func (l *link) close() {
	l.base.CloseIdleConnections()
	l.tracking.CloseAll()
}
