// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"encoding/base64"
	"errors"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// The keys of the client's data, and those that name a file in their place.
const (
	clientCertificate = "client-certificate"
	clientKey         = "client-key"
)

// Client returns the client certificate and key of the current context's user, as the bytes that their
// data encode. An error is the reason why the file cannot be edited, as one line without content.
func Client(file []byte) (certificate, key []byte, err error) {
	if certificate, err = client(file, clientCertificate); err != nil {
		return nil, nil, err
	}
	if key, err = client(file, clientKey); err != nil {
		return nil, nil, err
	}
	return certificate, key, nil
}

func client(file []byte, which string) ([]byte, error) {
	s, err := findClient(file, which)
	if err != nil {
		return nil, err
	}
	if _, err := s.replace(file, probe); err != nil {
		return nil, err
	}
	b, err := base64.StdEncoding.DecodeString(s.node.Value)
	if err != nil || len(b) == 0 {
		return nil, fmt.Errorf("line %d: %s are not base64", s.node.Line, s.what)
	}
	return b, nil
}

// SetClient returns the file with client certificate and key of its current context's user replaced; they
// are not judged. The arguments stay as they are. An error is the reason for which it cannot be done, as
// one line without content.
func SetClient(file, certificate, key []byte) (out []byte, err error) {
	if len(certificate) == 0 || len(key) == 0 {
		return nil, errors.New("no client data to put in place")
	}
	out = file
	for _, v := range []struct {
		which string
		data  []byte
	}{{clientCertificate, certificate}, {clientKey, key}} {
		s, err := findClient(out, v.which)
		if err != nil {
			return nil, err
		}
		if out, err = s.replace(out, base64.StdEncoding.EncodeToString(v.data)); err != nil {
			return nil, err
		}
	}
	if len(out) > maxBytes {
		return nil, fmt.Errorf("would have %d bytes, more than %d", len(out), maxBytes)
	}
	return out, nil
}

func findClient(file []byte, which string) (site, error) {
	return findValue(file, which+"-data", func(root *yaml.Node) (*yaml.Node, error) {
		user, err := currentUser(root)
		if err != nil {
			return nil, err
		}
		value, err := field(user, which+"-data", yaml.ScalarNode)
		if err != nil || value != nil {
			return value, err
		}
		path, err := field(user, which, yaml.ScalarNode)
		if err != nil {
			return nil, err
		}
		if path != nil {
			return nil, fmt.Errorf("line %d: the user names a file, %s, in place of the data", user.Line, which)
		}
		return nil, fmt.Errorf("line %d: the user has no %s-data", user.Line, which)
	})
}

// currentUser finds the user as whom clients of the file speak. Unlike a cluster, one that is not the current
// context's is never used.
func currentUser(root *yaml.Node) (*yaml.Node, error) {
	users, err := field(root, "users", yaml.SequenceNode)
	if err != nil {
		return nil, err
	}
	name, err := currentName(root, "user")
	if err != nil {
		return nil, err
	}
	if users == nil || name == "" {
		return nil, errors.New("has no user of the current context")
	}
	found, n, err := named(users, name)
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
