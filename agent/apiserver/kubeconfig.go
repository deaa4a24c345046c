// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"cmp"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"

	"k8s.io/client-go/transport"
)

// What is accepted, for the end of an error.
const (
	acceptedCredentials = "accepted are client-certificate[-data] with client-key[-data], token, and tokenFile"
	acceptedTrust       = "accepted is certificate-authority[-data]"
)

// read is Parse for a file.
func read(path string) (Config, error) {
	data, err := readFile(path)
	if err != nil {
		return Config{}, err
	}
	return Parse(data, filepath.Dir(path), false)
}

// Parse checks the whole file, users and clusters included that the current context does not name:
// what is refused in one of them was meant to be used by somebody. Relative paths start at dir. Only
// where pins say which CAs will do may the file state none.
func Parse(data []byte, dir string, pinned bool) (Config, error) {
	top, err := open(data, dir)
	if err != nil {
		return Config{}, err
	}
	clusters, err := top.named("clusters", "cluster", "server", "certificate-authority", "certificate-authority-data",
		"insecure-skip-tls-verify", "tls-server-name", "proxy-url", "disable-compression")
	if err != nil {
		return Config{}, err
	}
	users, err := top.named("users", "user",
		"client-certificate", "client-certificate-data", "client-key", "client-key-data",
		"token", "tokenFile", "exec", "auth-provider", "username", "password", "as", "as-uid", "as-groups", "as-user-extra")
	if err != nil {
		return Config{}, err
	}
	contexts, err := top.named("contexts", "context", "cluster", "user", "namespace")
	if err != nil {
		return Config{}, err
	}
	context, err := top.chosen(contexts, "current-context")
	if err != nil {
		return Config{}, err
	}
	cluster, err := context.chosen(clusters, "cluster")
	if err != nil {
		return Config{}, err
	}
	user, err := context.chosen(users, "user")
	if err != nil {
		return Config{}, err
	}
	c := Config{transport: transport.Config{UserAgent: userAgent}}
	if err := cluster.trust(&c, pinned); err != nil {
		return Config{}, err
	}
	return c, user.credentials(&c)
}

// trust reads where the server is and how it is verified.
func (s section) trust(c *Config, pinned bool) error {
	server, err := s.text("server")
	if err != nil {
		return err
	}
	u, err := url.Parse(server)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return s.fault(s.values["server"], "server", "accepted is https://host[:port][/path]")
	}
	c.server = *u
	if err := s.readCAs(c, pinned); err != nil {
		return err
	}
	if c.transport.TLS.ServerName, err = s.text("tls-server-name"); err != nil {
		return err
	}
	plain, err := s.text("disable-compression")
	if err != nil {
		return err
	}
	c.transport.DisableCompression = plain == "true"
	proxy, err := s.text("proxy-url")
	if err != nil || proxy == "" {
		return err
	}
	u, err = url.Parse(proxy)
	if err != nil || u.Host == "" || !slices.Contains([]string{"http", "https", "socks5"}, u.Scheme) {
		return s.fault(s.values["proxy-url"], "proxy-url", "accepted is http://, https:// or socks5:// with a host")
	}
	c.transport.Proxy, c.proxy = http.ProxyURL(u), proxy
	return nil
}

// readCAs reads the CAs, and makes sure that one of them can verify a server. A server's own certificate in place of
// its CA would do so until it is renewed, and lock us out then. A file is read now: with its path, each connection
// would read again whatever is there then.
func (s section) readCAs(c *Config, pinned bool) error {
	ca, file, err := s.content("certificate-authority")
	if err != nil {
		return err
	}
	if file != "" {
		if ca, err = readFile(file); err != nil {
			return s.fault(s.values["certificate-authority"], "certificate-authority", file+": "+err.Error())
		}
	}
	switch stated := cmp.Or(s.values["certificate-authority-data"], s.values["certificate-authority"]); {
	case len(ca) == 0 && file == "" && pinned:
	case len(ca) == 0 && file == "":
		return s.fault(nil, "certificate-authority", "missing: the server must be verified against stated CAs")
	case !HoldsCA(ca):
		return s.fault(stated, "certificate-authority", "holds no CA")
	}
	c.transport.TLS.CAData, c.caFile = ca, file
	return nil
}

// credentials reads who we are.
func (s section) credentials(c *Config) (err error) {
	t := &c.transport
	if t.TLS.CertData, t.TLS.CertFile, err = s.content("client-certificate"); err != nil {
		return err
	}
	if t.TLS.KeyData, t.TLS.KeyFile, err = s.content("client-key"); err != nil {
		return err
	}
	if t.BearerToken, err = s.text("token"); err != nil {
		return err
	}
	if t.BearerTokenFile, err = s.file("tokenFile"); err != nil {
		return err
	}
	cert, key := len(t.TLS.CertData) > 0 || t.TLS.CertFile != "", len(t.TLS.KeyData) > 0 || t.TLS.KeyFile != ""
	switch {
	case cert != key:
		return s.fault(nil, "client-certificate", "certificate and key must come together; "+acceptedCredentials)
	case t.BearerToken != "" && t.BearerTokenFile != "":
		return s.fault(s.values["tokenFile"], "tokenFile", "token is given as well: give one")
	case !cert && !t.HasTokenAuth():
		return s.fault(nil, "", "no credentials; "+acceptedCredentials)
	}
	return nil
}
