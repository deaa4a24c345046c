// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"encoding/base64"
	"errors"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// User is how the current context's user proves who it is: with the PEM of a certificate and its key in the file, or
// with paths of files. Data win over a path, as in client-go. The key is secret.
type User struct {
	Certificate, Key         []byte
	CertificateFile, KeyFile string
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

// currentUser finds the user's mapping.
func currentUser(root *yaml.Node) (*yaml.Node, error) {
	context, err := currentContext(root)
	if err != nil {
		return nil, err
	}
	if context == nil {
		return nil, errors.New("has no current context")
	}
	name, err := field(context, "user", yaml.ScalarNode)
	if err != nil {
		return nil, err
	}
	users, err := field(root, "users", yaml.SequenceNode)
	if err != nil {
		return nil, err
	}
	if name == nil || users == nil {
		return nil, errors.New("the current context has no user")
	}
	found, n, err := named(users, name.Value)
	if err != nil {
		return nil, err
	}
	if n != 1 {
		return nil, fmt.Errorf("has %d users of the current context's name", n)
	}
	user, err := field(found, "user", yaml.MappingNode)
	if err == nil && user == nil {
		err = fmt.Errorf("line %d: the user is empty", found.Line)
	}
	return user, err
}
