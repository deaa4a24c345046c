// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"encoding/base64"
	"errors"

	"go.yaml.in/yaml/v3"
)

// User is how the current context's user proves who it is: with the PEM of a certificate and its key in the file, or
// with paths of files. Data win over a path, as in client-go. The key is secret.
type User struct {
	Certificate, Key         []byte
	CertificateFile, KeyFile string
	// Server is the URL of the current context's cluster.
	Server string
}

// CurrentUser reads the current context's user. A user without a client certificate is an error, and so is whatever
// leaves a doubt about which one counts.
func CurrentUser(file []byte) (u User, err error) {
	document, err := parse(file)
	if err != nil {
		return u, err
	}
	user, err := currentUser(document.Content[0])
	if err != nil {
		return u, err
	}
	var cert, key string
	for _, f := range []struct {
		name string
		into *string
	}{
		{"client-certificate-data", &cert}, {"client-key-data", &key},
		{"client-certificate", &u.CertificateFile}, {"client-key", &u.KeyFile},
	} {
		n, err := field(user, f.name, yaml.ScalarNode)
		if err != nil {
			return User{}, err
		}
		if n != nil {
			*f.into = n.Value
		}
	}
	if u.Server, err = currentServer(document.Content[0]); err != nil {
		return User{}, err
	}
	if cert == "" || key == "" {
		if u.CertificateFile == "" || u.KeyFile == "" {
			return User{}, errors.New("the current context's user has no client certificate with its key")
		}
		return u, nil
	}
	u.CertificateFile, u.KeyFile = "", ""
	if u.Certificate, err = base64.StdEncoding.DecodeString(cert); err != nil {
		return User{}, errors.New("client-certificate-data is not base64")
	}
	if u.Key, err = base64.StdEncoding.DecodeString(key); err != nil {
		return User{}, errors.New("client-key-data is not base64")
	}
	return u, nil
}

// currentServer is the URL of the current cluster.
func currentServer(root *yaml.Node) (string, error) {
	cluster, err := current(root)
	if err != nil {
		return "", err
	}
	server, err := field(cluster, "server", yaml.ScalarNode)
	if err != nil || server == nil {
		return "", err
	}
	return server.Value, nil
}
