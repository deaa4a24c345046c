// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"fmt"

	"github.com/node-cert-agent/node-cert-agent/renew/etcd/wire"
)

// Change is a change of one key that happens only if the key is as expected, in one transaction.
type Change struct {
	Key string
	// From is the key's ModRevision, or 0 if it has to be absent.
	From int64
	// Value is what the key gets, unless Delete is set.
	Value  []byte
	Delete bool
	// Lease is what the key lives under afterwards: with 0 nothing but a change ends it, whatever it lived under before.
	Lease Lease
	// Record, if it is not nil, is written with the change: its Key and Value count.
	Record *KeyValue
}

// Result is what became of a Change.
type Result struct {
	// Done says that the key was as expected.
	Done bool
	// Revision is the cluster's after the transaction: the ModRevision of a value that was put.
	Revision int64
	// Current is the key as it is, if it was not as expected; nil if it is absent.
	Current *KeyValue
}

// Commit makes a change, or reads the key.
func (c *Client) Commit(ctx context.Context, ch Change) (r Result, err error) {
	var found []KeyValue
	if err = c.call(ctx, "KV/Txn", ch.encode(), result(&r, &found)); err != nil {
		return Result{}, err
	}
	if r.Revision <= 0 {
		return Result{}, fmt.Errorf("changing %s in etcd at %s: %w: no revision", ch.Key, c.endpoint, ErrAnswer)
	}
	if !r.Done {
		if r.Current, err = single(found, ch.Key); err != nil {
			return Result{}, fmt.Errorf("changing %s in etcd at %s: %w", ch.Key, c.endpoint, err)
		}
	}
	return r, nil
}

// encode is the change as a TxnRequest: compare (1), success (2) and failure (3).
func (ch Change) encode() []byte {
	name := wire.AppendBytes(nil, 1, ch.Key) // a whole RangeRequest or DeleteRangeRequest, and the begin of a PutRequest
	operation := wire.AppendBytes(nil, 3, name)
	if !ch.Delete {
		operation = wire.AppendBytes(nil, 2, wire.AppendNumber(wire.AppendBytes(name, 2, ch.Value), 3, ch.Lease))
	}
	b := wire.AppendBytes(wire.AppendBytes(nil, 1, ch.compare()), 2, operation)
	if ch.Record != nil {
		put := wire.AppendBytes(wire.AppendBytes(nil, 1, ch.Record.Key), 2, ch.Record.Value)
		b = wire.AppendBytes(b, 2, wire.AppendBytes(nil, 2, put))
	}
	return wire.AppendBytes(b, 3, wire.AppendBytes(nil, 1, name))
}

// compare is the condition as a Compare: result EQUAL, which is 0, target (2) MOD, key (3) and mod_revision (6), which
// is 0 for a key that is absent.
func (ch Change) compare() []byte {
	const mod = 2
	return wire.AppendNumber(wire.AppendBytes(wire.AppendNumber(nil, 2, int32(mod)), 3, ch.Key), 6, ch.From)
}

// result reads a TxnResponse; found is what the read of a change that was not made says.
func result(r *Result, found *[]KeyValue) wire.Fields {
	return wire.Fields{
		1: wire.Message(func(b []byte) error { return wire.Decode(b, wire.Fields{3: wire.Number(&r.Revision)}) }),
		2: wire.Bool(&r.Done),
		3: wire.Message(func(b []byte) error {
			return wire.Decode(b, wire.Fields{1: wire.Message(func(b []byte) error {
				return wire.Decode(b, rangeFields(found))
			})})
		}),
	}
}
