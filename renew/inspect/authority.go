// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"errors"
	"fmt"
	"slices"

	"github.com/node-cert-agent/node-cert-agent/agent/secret"
	"github.com/node-cert-agent/node-cert-agent/renew/pair"
)

// Find is the pair of that name, as it is now.
func (h Host) Find(name string) (pair.Facts, error) {
	seen, err := h.Inspect()
	if err != nil {
		return pair.Facts{}, err
	}
	i := slices.IndexFunc(seen.Pairs, func(f pair.Facts) bool { return f.Name == name })
	if i < 0 {
		return pair.Facts{}, fmt.Errorf("there is no pair %.64q on this host", name)
	}
	return seen.Pairs[i], nil
}

// Authority reads the CA certificates and the key with which a pair can be renewed. Files that others than root can
// write are an error: who could give us another CA could have any certificate.
func (h Host) Authority(f pair.Facts) (certificates []byte, key secret.Bytes, err error) {
	if f.CA == nil || !f.CA.KeyHere {
		return nil, key, fmt.Errorf("%s: the key of its CA is not on this host", f.Name)
	}
	if certificates, err = h.Trusted(f); err != nil {
		return nil, key, err
	}
	k, err := h.read(f.CA.KeyPath)
	if err != nil {
		return nil, key, err
	}
	if k.foreign != "" {
		return nil, key, fmt.Errorf(untrusted, k.foreign)
	}
	return certificates, secret.New(k.data), nil
}

const untrusted = "the CA is not to be trusted: %s"

// Trusted reads the CA certificates that a pair was signed with, under the same condition.
func (h Host) Trusted(f pair.Facts) ([]byte, error) {
	if f.CA == nil {
		return nil, fmt.Errorf("%s: no CA on this host has signed it", f.Name)
	}
	ca, err := h.read(f.CA.Path)
	if err == nil && ca.foreign != "" {
		err = fmt.Errorf(untrusted, ca.foreign)
	}
	return ca.data, err
}

// EtcdAuthority reads what Authority does, for the CA that signed the pair of this host's member of etcd.
func (h Host) EtcdAuthority() (certificates []byte, key secret.Bytes, err error) {
	seen, err := h.Inspect()
	if err != nil {
		return nil, key, err
	}
	f, ok := pair.EtcdServer(seen.Pairs)
	if !ok {
		return nil, key, errors.New("no member of etcd runs on this host")
	}
	return h.Authority(f)
}
