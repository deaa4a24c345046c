// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"errors"
	"net/http"
	"net/url"
	"sync/atomic"
)

// errNoIdentity is the answer to every request before there is an identity.
var errNoIdentity = errors.New("this node has no identity yet")

// door is the one transport that others hold. Behind it links are exchanged: who goes through next
// uses the new one, on fresh connections, and who is inside stays until the old link is closed.
type door struct {
	link atomic.Pointer[link]
	// turned is told of answers that cast doubt on the identity: 401 and 403, and 0 for a server that
	// no known CA verifies.
	turned func(status int)
}

// placeholder is the base URL of every request; the door knows where the server really is, which may
// change under way. RFC 2606 keeps the name from meaning anything.
var placeholder = url.URL{Scheme: "https", Host: "kube-apiserver.invalid"}

// RoundTrip implements http.RoundTripper.
func (d *door) RoundTrip(req *http.Request) (*http.Response, error) {
	l := d.link.Load()
	if l == nil {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, errNoIdentity
	}
	res, err := l.rt.RoundTrip(l.direct(req))
	if err == nil && (res.StatusCode == http.StatusUnauthorized || res.StatusCode == http.StatusForbidden) {
		d.turned(res.StatusCode)
	}
	if untrusted(err) {
		d.turned(0)
	}
	return res, err
}

// direct is the request with the server's real address.
func (l *link) direct(req *http.Request) *http.Request {
	out := req.Clone(req.Context())
	u := l.server.JoinPath(req.URL.Path)
	u.RawQuery = req.URL.RawQuery
	out.URL, out.Host = u, ""
	return out
}

// newClient goes through rt and follows no redirects: they would lead credentials elsewhere.
func newClient(rt http.RoundTripper) *http.Client {
	return &http.Client{Transport: rt, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}
