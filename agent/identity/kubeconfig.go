// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"k8s.io/client-go/transport"
)

// config is what a kubeconfig says, checked.
type config struct {
	transport transport.Config
	server    url.URL
	proxy     string
	// caFile is where the CAs in transport were read, empty if the kubeconfig itself holds them.
	caFile string
	// pinned are CAs in PEM that are trusted beside those of transport.
	pinned []byte
	// trusted is what the cluster itself publishes, trusted likewise: see Keeper.Trust.
	trusted []byte
	// clock is the host's, nil the system's. Servers are judged by it, but by no time before floor, which
	// has certainly passed.
	clock func() time.Time
	floor time.Time
	// dial is the system's if nil.
	dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// What is accepted, for the end of an error.
const (
	acceptedCredentials = "accepted are client-certificate[-data] with client-key[-data], token, and tokenFile"
	acceptedTrust       = "accepted is certificate-authority[-data]"
)

// refused names the fields that ask for more than TLS with stated credentials.
var refused = map[string]string{
	"exec":                     "running a program is not accepted; " + acceptedCredentials,
	"auth-provider":            "plug-ins are not accepted; " + acceptedCredentials,
	"username":                 "basic authentication is not accepted; " + acceptedCredentials,
	"password":                 "basic authentication is not accepted; " + acceptedCredentials,
	"as":                       "impersonation is not accepted; " + acceptedCredentials,
	"as-uid":                   "impersonation is not accepted; " + acceptedCredentials,
	"as-groups":                "impersonation is not accepted; " + acceptedCredentials,
	"as-user-extra":            "impersonation is not accepted; " + acceptedCredentials,
	"insecure-skip-tls-verify": "a server that is not verified is not accepted; " + acceptedTrust,
}

// section is one mapping of the file, after its names have been checked.
type section struct {
	path   string // as in users[].user
	line   int
	dir    string // of the kubeconfig
	values map[string]*yaml.Node
}

// read is parse for a file.
func read(path string) (config, error) {
	data, err := readFile(path)
	if err != nil {
		return config{}, err
	}
	return parse(data, filepath.Dir(path), false)
}

// parse checks the whole file, users and clusters included that the current context does not name:
// what is refused in one of them was meant to be used by somebody. Relative paths start at dir. Only
// where pins say which CAs will do may the file state none.
func parse(data []byte, dir string, pinned bool) (config, error) {
	top, err := open(data, dir)
	if err != nil {
		return config{}, err
	}
	clusters, err := top.named("clusters", "cluster", "server", "certificate-authority", "certificate-authority-data",
		"insecure-skip-tls-verify", "tls-server-name", "proxy-url", "disable-compression")
	if err != nil {
		return config{}, err
	}
	users, err := top.named("users", "user", "client-certificate", "client-certificate-data", "client-key", "client-key-data",
		"token", "tokenFile", "exec", "auth-provider", "username", "password", "as", "as-uid", "as-groups", "as-user-extra")
	if err != nil {
		return config{}, err
	}
	contexts, err := top.named("contexts", "context", "cluster", "user", "namespace")
	if err != nil {
		return config{}, err
	}
	context, err := top.chosen(contexts, "current-context")
	if err != nil {
		return config{}, err
	}
	cluster, err := context.chosen(clusters, "cluster")
	if err != nil {
		return config{}, err
	}
	user, err := context.chosen(users, "user")
	if err != nil {
		return config{}, err
	}
	c := config{transport: transport.Config{UserAgent: userAgent}}
	if err := cluster.trust(&c, pinned); err != nil {
		return config{}, err
	}
	return c, user.credentials(&c)
}

// open parses the file without giving anything in it a meaning.
func open(data []byte, dir string) (section, error) {
	if len(data) > maxFile {
		return section{}, fmt.Errorf("larger than %d bytes", maxFile)
	}
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil {
		// The parser quotes what it stumbles over.
		return section{}, errors.New(strings.TrimSuffix("not YAML, "+inLine.FindString(err.Error()), ", "))
	}
	if document.Kind != yaml.DocumentNode {
		return section{}, errors.New("empty")
	}
	s := section{path: "", dir: dir}
	return s.child("", document.Content[0], "apiVersion", "kind", "preferences", "clusters", "users", "contexts", "current-context")
}

var inLine = regexp.MustCompile(`line \d+`)

// child reads a mapping that may have these names, and refuses the fields that are not accepted. The
// free-form extensions are skipped everywhere.
func (s section) child(name string, n *yaml.Node, names ...string) (section, error) {
	c := section{path: s.path + name, line: n.Line, dir: s.dir, values: make(map[string]*yaml.Node)}
	if n.Kind != yaml.MappingNode {
		return c, c.fault(n, "", "not a mapping")
	}
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch {
		case key.Value == "extensions":
			continue
		case !slices.Contains(names, key.Value):
			return c, c.fault(key, "", "an unknown field") // its name may be a misplaced secret
		case c.values[key.Value] != nil:
			return c, c.fault(key, key.Value, "given twice")
		case value.Kind == yaml.AliasNode:
			return c, c.fault(value, key.Value, "aliases are not accepted")
		case value.Tag == "!!null":
			continue
		}
		why, bad := refused[key.Value]
		if bad && !harmless(key.Value, value) {
			return c, c.fault(key, key.Value, why)
		}
		c.values[key.Value] = value
	}
	return c, nil
}

// harmless recognises the one refused field that kubectl writes with a value that refuses nothing.
func harmless(name string, value *yaml.Node) bool {
	var b bool
	return name == "insecure-skip-tls-verify" && value.Decode(&b) == nil && !b
}

// named reads a list of {name, <inner>: {...}}.
func (s section) named(list, inner string, names ...string) (map[string]section, error) {
	out := make(map[string]section)
	n := s.values[list]
	if n == nil {
		return out, nil
	}
	if n.Kind != yaml.SequenceNode {
		return nil, s.fault(n, list, "not a list")
	}
	for _, item := range n.Content {
		outer, err := s.child(list+"[]", item, "name", inner)
		if err != nil {
			return nil, err
		}
		name, err := outer.text("name")
		if err != nil {
			return nil, err
		}
		body := outer.values[inner]
		if body == nil {
			continue
		}
		if _, twice := out[name]; twice {
			return nil, s.fault(item, list, "two entries of one name")
		}
		if out[name], err = outer.child("."+inner, body, names...); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// chosen follows a reference by name.
func (s section) chosen(among map[string]section, field string) (section, error) {
	name, err := s.text(field)
	if err != nil {
		return section{}, err
	}
	c, ok := among[name]
	if name == "" || !ok {
		return section{}, s.fault(s.values[field], field, "names nothing in this file")
	}
	return c, nil
}

// trust reads where the server is and how it is verified.
func (s section) trust(c *config, pinned bool) error {
	server, err := s.text("server")
	if err != nil {
		return err
	}
	u, err := url.Parse(server)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return s.fault(s.values["server"], "server", "accepted is https://host[:port][/path]")
	}
	c.server = *u
	if err := s.anchor(c, pinned); err != nil {
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

// anchor reads the CAs, and makes sure that something stated can verify a server. A server's own certificate in
// the place of its CA would do so until it is renewed, and lock us out then. What a file holds is taken over
// as it is now: a path would be opened anew by whoever connects, whatever stands there then.
func (s section) anchor(c *config, pinned bool) error {
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
	case !slices.ContainsFunc(authorities(ca), signs):
		return s.fault(stated, "certificate-authority", "holds no CA")
	}
	c.transport.TLS.CAData, c.caFile = ca, file
	return nil
}

// credentials reads who we are.
func (s section) credentials(c *config) (err error) {
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

// content reads a field that comes as <name>-data or as a file.
func (s section) content(name string) (data []byte, file string, err error) {
	text, err := s.text(name + "-data")
	if err != nil {
		return nil, "", err
	}
	if file, err = s.file(name); err != nil {
		return nil, "", err
	}
	if text != "" && file != "" {
		return nil, "", s.fault(s.values[name], name, name+"-data is given as well: give one")
	}
	if data, err = base64.StdEncoding.DecodeString(text); err != nil {
		return nil, "", s.fault(s.values[name+"-data"], name+"-data", "not base64")
	}
	return data, file, nil
}

// file reads a path, which must lead to a regular file that can be read.
func (s section) file(name string) (string, error) {
	path, err := s.text(name)
	if err != nil || path == "" {
		return "", err
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(s.dir, path)
	}
	if _, err := readFile(path); err != nil {
		return "", s.fault(s.values[name], name, path+": "+err.Error())
	}
	return path, nil
}

func (s section) text(name string) (string, error) {
	n := s.values[name]
	if n == nil {
		return "", nil
	}
	if n.Kind != yaml.ScalarNode {
		return "", s.fault(n, name, "not a string")
	}
	return n.Value, nil
}

// fault is an error about a field, at n or else at the section.
func (s section) fault(n *yaml.Node, field, what string) error {
	line := s.line
	if n != nil {
		line = n.Line
	}
	path := s.path
	if path != "" && field != "" {
		path += "."
	}
	if path += field; path == "" {
		return fmt.Errorf("line %d: %s", line, what)
	}
	return fmt.Errorf("line %d: %s: %s", line, path, what)
}
