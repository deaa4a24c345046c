// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/transport"
)

// DialFunc connects to a server or a proxy, as net.Dialer.DialContext does.
type DialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// Config is how to speak to one API server as somebody: what a kubeconfig says, checked, and what the caller adds.
type Config struct {
	// Pinned are CAs in PEM that are trusted beside the stated ones, found by their pinned keys.
	Pinned []byte
	// Trusted are CAs in PEM that the cluster itself publishes, trusted likewise.
	Trusted []byte
	// Clock is the host's, nil the system's. Servers are judged by it, but by no time before NotBefore, which has
	// certainly passed.
	Clock     func() time.Time
	NotBefore time.Time
	// Dial is the system's if nil.
	Dial DialFunc

	transport transport.Config
	server    url.URL
	proxy     string
	// caFile is where the CAs in transport were read, empty if the kubeconfig itself holds them.
	caFile string
}

// tls says how the server is verified, and with which certificate we are. Where no CA is known no server
// is: the CAs of the host, which TLS would fall back to, are for other purposes.
func (c Config) tls() (*tls.Config, error) {
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
	out.RootCAs.AppendCertsFromPEM(c.Pinned)
	out.RootCAs.AppendCertsFromPEM(c.Trusted)
	cas := authorities(slices.Concat(c.transport.TLS.CAData, c.Pinned))
	clock, notBefore := c.Clock, later(c.NotBefore, earliestNotBefore(cas))
	if clock == nil {
		clock = time.Now
	}
	// With a slow clock a server's certificate must not look as if it were not yet valid. The time only moves
	// forward here: a certificate that has expired by the clock stays expired.
	out.Time = func() time.Time { return later(clock(), notBefore) }
	return out, nil
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// earliestNotBefore is the earliest NotBefore of these CAs, zero if there are none. The CA that verifies a server is
// valid already; the others may be published for the future.
func earliestNotBefore(cas []*x509.Certificate) (t time.Time) {
	for _, c := range cas {
		if t.IsZero() || c.NotBefore.Before(t) {
			t = c.NotBefore
		}
	}
	return t
}

// CAChanged reports whether the CAs were read from a file that holds others now. A file that is being written, or
// that holds no CA, changes nothing.
func (c Config) CAChanged() bool {
	_, changed := c.replaced()
	return changed
}

// replaced gives the CAs of which CAChanged speaks.
func (c Config) replaced() (ca []byte, changed bool) {
	if c.caFile == "" {
		return nil, false
	}
	ca, err := readFile(c.caFile)
	if err != nil || bytes.Equal(ca, c.transport.TLS.CAData) || !HoldsCA(ca) {
		return nil, false
	}
	return ca, true
}

// inline puts the content of every file that is named in its place.
func (c *Config) inline() error {
	t := &c.transport.TLS
	for path, content := range map[*string]*[]byte{&t.CertFile: &t.CertData, &t.KeyFile: &t.KeyData} {
		if *path == "" {
			continue
		}
		b, err := readFile(*path)
		if err != nil {
			return fmt.Errorf("%s: %v", *path, err)
		}
		*path, *content = "", b
	}
	if path := c.transport.BearerTokenFile; path != "" {
		b, err := readFile(path)
		if err != nil {
			return fmt.Errorf("%s: %v", path, err)
		}
		c.transport.BearerTokenFile, c.transport.BearerToken = "", strings.TrimSpace(string(b))
	}
	c.caFile = ""
	return nil
}

// Cluster is where an API server is and how it is verified. It names no file: what belongs to an identity is
// in it, and whoever reads it, as root too, opens nothing on its word.
type Cluster struct {
	Server string `json:"server"`
	CA     []byte `json:"certificateAuthority,omitempty"`
	// Pinned are CAs beside the stated ones, found by their pinned keys. Both are trusted.
	Pinned     []byte `json:"pinnedAuthority,omitempty"`
	ServerName string `json:"tlsServerName,omitempty"`
	Proxy      string `json:"proxy,omitempty"`
}

// Cluster is c without credentials.
func (c Config) Cluster() Cluster {
	t := c.transport.TLS
	return Cluster{Server: c.server.String(), CA: t.CAData, Pinned: c.Pinned, ServerName: t.ServerName, Proxy: c.proxy}
}

// Same reports whether both lead to one API server and state the same trust. What pins added is a
// matter of that cluster.
func (c Cluster) Same(other Cluster) bool {
	return c.Server == other.Server && bytes.Equal(c.CA, other.CA)
}

// Config is how to speak there with a client certificate and its key in PEM, or as nobody if both are empty. An
// error is the end of a sentence about the cluster.
func (c Cluster) Config(cert, key []byte) (Config, error) {
	out := Config{proxy: c.Proxy, Pinned: c.Pinned, transport: transport.Config{UserAgent: userAgent,
		TLS: transport.TLSConfig{CAData: c.CA, ServerName: c.ServerName, CertData: cert, KeyData: key}}}
	u, err := url.Parse(c.Server)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return Config{}, errors.New("names no server that can be verified")
	}
	out.server = *u
	if c.Proxy != "" {
		p, err := url.Parse(c.Proxy)
		if err != nil {
			return Config{}, errors.New("names a proxy that is no URL")
		}
		out.transport.Proxy = http.ProxyURL(p)
	}
	return out, nil
}
