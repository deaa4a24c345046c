// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"fmt"
	"strings"

	"github.com/node-cert-agent/node-cert-agent/renew/etcd/wire"
)

// KeyValue is a key that exists.
type KeyValue struct {
	Key   string
	Value []byte
	// CreateRevision and ModRevision are those of the changes that made the key and that gave it this value. No two
	// changes of a cluster have one revision, so that a key which was deleted and made again is told from before.
	CreateRevision, ModRevision int64
	// Lease is 0 for a key that nothing but a change ends.
	Lease Lease
}

// Get reads a key, linearizable: what was changed anywhere before the call is seen. Without the key it is nil.
func (c *Client) Get(ctx context.Context, key string) (*KeyValue, error) {
	var found []KeyValue
	if err := c.call(ctx, "KV/Range", wire.AppendBytes(nil, 1, key), rangeFields(&found)); err != nil {
		return nil, err
	}
	kv, err := single(found, key)
	if err != nil {
		return nil, fmt.Errorf("reading %s in etcd at %s: %w", key, c.endpoint, err)
	}
	return kv, nil
}

// List reads the keys that begin with prefix, linearizable, in their order and no more than limit of them. The last
// byte of prefix is not 0xff.
func (c *Client) List(ctx context.Context, prefix string, limit int) ([]KeyValue, error) {
	end := []byte(prefix)
	end[len(end)-1]++ // the first key that does not begin with it
	in := wire.AppendNumber(wire.AppendBytes(wire.AppendBytes(nil, 1, prefix), 2, end), 3, int64(limit))
	var found []KeyValue
	if err := c.call(ctx, "KV/Range", in, rangeFields(&found)); err != nil {
		return nil, err
	}
	for _, kv := range found {
		if len(found) > limit || !strings.HasPrefix(kv.Key, prefix) || kv.ModRevision <= 0 {
			return nil, fmt.Errorf("reading %s in etcd at %s: %w: other keys", prefix, c.endpoint, ErrAnswer)
		}
	}
	return found, nil
}

func rangeFields(to *[]KeyValue) wire.Fields {
	return wire.Fields{2: wire.Repeated(to, decodeKeyValue)}
}

func decodeKeyValue(b []byte) (kv KeyValue, err error) {
	err = wire.Decode(b, wire.Fields{
		1: wire.Text(&kv.Key), 2: wire.Number(&kv.CreateRevision), 3: wire.Number(&kv.ModRevision),
		5: wire.Bytes(&kv.Value), 6: wire.Number(&kv.Lease),
	})
	return kv, err
}

// single is the key that was asked for, of what a server says it found.
func single(found []KeyValue, key string) (*KeyValue, error) {
	switch {
	case len(found) == 0:
		return nil, nil
	case len(found) > 1 || found[0].Key != key || found[0].ModRevision <= 0:
		return nil, fmt.Errorf("%w: another key than %s", ErrAnswer, key)
	}
	return &found[0], nil
}
