// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync/atomic"
)

// errNoIdentity is the answer to every request before there is a Conn.
var errNoIdentity = errors.New("this node has no identity yet")

// placeholder is the base URL of every request; Rotating knows where the server really is, which may
// change under way. RFC 2606 keeps the name from meaning anything.
var placeholder = url.URL{Scheme: "https", Host: "kube-apiserver.invalid"}

// Rotating is the one transport that others hold. Behind it a Conn is swapped for another: new requests use the new
// one, on fresh connections, and what is under way stays until the old one is closed. Make it with NewRotating.
type Rotating struct {
	conn     atomic.Pointer[Conn]
	answered func(status int)
}

// NewRotating makes one without a Conn, through which every request fails. answered is told of
// the status of each answer, on the goroutine that asked: 0 is a server that no known CA verifies.
func NewRotating(answered func(status int)) *Rotating { return &Rotating{answered: answered} }

// Conn is the present one, nil if there is none.
func (r *Rotating) Conn() *Conn { return r.conn.Load() }

// Swap has new requests use c from now on, and returns the one before, which may still be in use.
func (r *Rotating) Swap(c *Conn) (old *Conn) { return r.conn.Swap(c) }

// HTTPClient goes to the API server of the present Conn. It does not follow redirects and has no overall timeout.
func (r *Rotating) HTTPClient() *http.Client { return newClient(r) }

// Server is the base URL for requests of HTTPClient. It stands for wherever the API server is.
func (r *Rotating) Server() *url.URL {
	u := placeholder
	return &u
}

// Prove is Conn.Prove. It fails if there is no Conn.
func (r *Rotating) Prove(ctx context.Context, bundle []byte) (why string, err error) {
	c := r.Conn()
	if c == nil {
		return "", errNoIdentity
	}
	return c.Prove(ctx, bundle)
}

// RoundTrip implements http.RoundTripper.
func (r *Rotating) RoundTrip(req *http.Request) (*http.Response, error) {
	c := r.Conn()
	if c == nil {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, errNoIdentity
	}
	res, err := c.client.Transport.RoundTrip(c.direct(req))
	switch {
	case err == nil:
		r.answered(res.StatusCode)
	case Untrusted(err):
		r.answered(0)
	}
	return res, err
}

// direct is the request with the server's real address.
func (c *Conn) direct(req *http.Request) *http.Request {
	out := req.Clone(req.Context())
	u := c.server.JoinPath(req.URL.Path)
	u.RawQuery = req.URL.RawQuery
	out.URL, out.Host = u, ""
	return out
}
