// SPDX-License-Identifier: Apache-2.0

package inspect

import (
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
	ca, err := h.read(f.CA.Path)
	if err != nil {
		return nil, key, err
	}
	k, err := h.read(f.CA.KeyPath)
	if err != nil {
		return nil, key, err
	}
	for _, c := range []content{ca, k} {
		if c.foreign != "" {
			return nil, key, fmt.Errorf("the CA is not to be trusted: %s", c.foreign)
		}
	}
	return ca.data, secret.New(k.data), nil
}
