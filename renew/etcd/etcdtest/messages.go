// SPDX-License-Identifier: Apache-2.0

package etcdtest

import (
	"context"
	"errors"

	"github.com/node-cert-agent/node-cert-agent/renew/etcd"
	"github.com/node-cert-agent/node-cert-agent/renew/etcd/wire"
)

func (s *Server) members(in []byte) (out []byte, err error) {
	var linearizable bool
	if err = wire.Decode(in, wire.Fields{1: wire.Bool(&linearizable)}); err != nil || !linearizable {
		return nil, &etcd.StatusError{Code: etcd.InvalidArgument, Message: "a member's own list may be old"}
	}
	for _, m := range s.Members {
		b := wire.AppendBytes(wire.AppendNumber(nil, 1, m.ID), 2, m.Name)
		for _, u := range m.PeerURLs {
			b = wire.AppendBytes(b, 3, u)
		}
		for _, u := range m.ClientURLs {
			b = wire.AppendBytes(b, 4, u)
		}
		if m.Learner {
			b = wire.AppendNumber(b, 5, int64(1))
		}
		out = wire.AppendBytes(out, 2, b)
	}
	return out, nil
}

func (s *Server) status() []byte {
	st := s.Status
	b := wire.AppendBytes(nil, 1, wire.AppendNumber(wire.AppendNumber(nil, 1, st.Cluster), 2, st.Member))
	b = wire.AppendNumber(wire.AppendNumber(wire.AppendBytes(b, 2, st.Version), 3, st.DBSize), 4, st.Leader)
	b = wire.AppendNumber(wire.AppendNumber(b, 6, st.RaftTerm), 7, st.AppliedIndex)
	for _, e := range st.Errors {
		b = wire.AppendBytes(b, 8, e)
	}
	if st.Learner {
		b = wire.AppendNumber(b, 10, int64(1))
	}
	return b
}

func (s *Server) get(ctx context.Context, in []byte) ([]byte, error) {
	var key, end string
	var limit int64
	if err := wire.Decode(in, wire.Fields{1: wire.Text(&key), 2: wire.Text(&end), 3: wire.Number(&limit)}); err != nil {
		return nil, err
	}
	if end == "" {
		kv, err := s.Store.Get(ctx, key)
		return found(kv), err
	}
	if last := len(key) - 1; end != key[:last]+string(key[last]+1) {
		return nil, errors.New("only the range of a prefix is known here")
	}
	all, err := s.Store.List(ctx, key, int(limit))
	var out []byte
	for _, kv := range all {
		out = append(out, found(&kv)...)
	}
	return out, err
}

// found is a RangeResponse.
func found(kv *etcd.KeyValue) []byte {
	if kv == nil {
		return nil
	}
	b := wire.AppendNumber(wire.AppendBytes(nil, 1, kv.Key), 2, kv.CreateRevision)
	b = wire.AppendNumber(wire.AppendBytes(wire.AppendNumber(b, 3, kv.ModRevision), 5, kv.Value), 6, kv.Lease)
	return wire.AppendBytes(nil, 2, b)
}

func (s *Server) commit(ctx context.Context, in []byte) ([]byte, error) {
	var ch etcd.Change
	var operations int
	put := func(b []byte) error {
		kv := &etcd.KeyValue{}
		err := wire.Decode(b, wire.Fields{1: wire.Text(&kv.Key), 2: wire.Bytes(&kv.Value), 3: wire.Number(&kv.Lease)})
		if operations++; operations == 1 {
			ch.Value, ch.Lease = kv.Value, kv.Lease
		} else {
			ch.Record = kv
		}
		return err
	}
	remove := func(b []byte) error {
		operations++
		ch.Delete = true
		return wire.Decode(b, nil)
	}
	err := wire.Decode(in, wire.Fields{
		1: wire.Message(func(b []byte) error {
			return wire.Decode(b, wire.Fields{3: wire.Text(&ch.Key), 6: wire.Number(&ch.From)})
		}),
		2: wire.Message(func(b []byte) error {
			return wire.Decode(b, wire.Fields{2: wire.Message(put), 3: wire.Message(remove)})
		}),
	})
	if err != nil {
		return nil, err
	}
	r, err := s.Store.Commit(ctx, ch)
	out := wire.AppendBytes(nil, 1, wire.AppendNumber(nil, 3, r.Revision))
	if r.Done {
		return wire.AppendNumber(out, 2, int64(1)), err
	}
	return wire.AppendBytes(out, 3, wire.AppendBytes(nil, 1, found(r.Current))), err
}
