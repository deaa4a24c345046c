// SPDX-License-Identifier: Apache-2.0

// Package etcd asks one member of an etcd cluster the few things that the renewal of a control plane needs: who the
// members are and how they fare, one key, a lease, and a change of a key that depends on what it was.
//
// It speaks etcd's own gRPC, one message each way, over net/http's HTTP/2. Every call has a deadline, and every answer
// a bound. Nothing is retried and no other member is asked instead: which member answers is what callers want to know.
// What an answer says is not judged, only that it is one.
//
// Sources: gRPC over HTTP/2 (github.com/grpc/grpc, doc/PROTOCOL-HTTP2.md); etcd 3.6, api/etcdserverpb/rpc.proto and
// api/mvccpb/kv.proto for the numbers of fields. Why by hand: docs/decisions/0045-asking-etcd.md.
package etcd

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// maxHeader and maxAnswer bound what a server may send, in bytes.
const (
	maxHeader = 64 << 10
	maxAnswer = 1 << 20
)

// idleTimeout is how long a connection is kept that nobody uses.
const idleTimeout = 30 * time.Second

// Client asks one member. Its methods may be called concurrently. An error wraps a *StatusError where the server gave
// one and ErrAnswer where the server does not speak gRPC or etcd; otherwise it says why there was no answer. After an
// error of Commit, Grant or Revoke it is unknown whether it was done: the answer may be all that was lost, and the
// request may still be on its way.
type Client struct {
	endpoint string
	config   *tls.Config
	timeout  time.Duration

	mu        sync.Mutex // guards transport
	transport *http.Transport
}

// New returns a client of the member at endpoint, an https URL with a host and a port. It connects at the first call.
// config has the CAs to believe and the pair to show, whose key may be any crypto.Signer; it is copied. A call takes no
// longer than timeout, the connection included.
func New(endpoint string, config *tls.Config, timeout time.Duration) (*Client, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Port() == "" || *u != (url.URL{Scheme: "https", Host: u.Host, Path: u.Path}) ||
		u.Path != "" && u.Path != "/" {
		return nil, fmt.Errorf("the endpoint %q is not https://HOST:PORT", endpoint)
	}
	c := &Client{endpoint: "https://" + u.Host, config: config.Clone(), timeout: timeout}
	c.transport = c.connect()
	return c, nil
}

// connect is HTTP/2 without a proxy.
func (c *Client) connect() *http.Transport {
	http2 := new(http.Protocols)
	http2.SetHTTP2(true)
	return &http.Transport{TLSClientConfig: c.config.Clone(), Protocols: http2, DisableCompression: true,
		MaxResponseHeaderBytes: maxHeader, IdleConnTimeout: idleTimeout}
}

// Close ends the connection, as soon as calls that use it have ended. The client may still be used and connects again,
// which is how to have a member judge a renewed pair: only at the beginning of a connection does anybody look at
// certificates.
func (c *Client) Close() {
	c.mu.Lock()
	old := c.transport
	c.transport = c.connect()
	c.mu.Unlock()
	old.CloseIdleConnections() // the others are idle later
}

// roundTrip sends a request on the connection that there is, or a new one. Redirects are answers like others.
func (c *Client) roundTrip(req *http.Request) (*http.Response, error) {
	c.mu.Lock()
	t := c.transport
	c.mu.Unlock()
	return t.RoundTrip(req)
}
