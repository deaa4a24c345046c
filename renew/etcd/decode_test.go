// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"encoding/binary"
	"errors"
	"testing"
	"unicode/utf8"

	"github.com/node-cert-agent/node-cert-agent/renew/etcd/wire"
)

// fuzzFields feeds a decoder, and what it took to check.
func fuzzFields[T any](f *testing.F, fields func(*T) wire.Fields, check func(T) bool) {
	member := wire.AppendBytes(wire.AppendNumber(nil, 1, uint64(1<<63)), 2, "a")
	key := wire.AppendNumber(wire.AppendBytes(wire.AppendNumber(member[:0:0], 3, int64(5)), 5, "value"), 6, int64(-1))
	f.Add(wire.AppendBytes(wire.AppendBytes(nil, 1, wire.AppendNumber(nil, 3, int64(7))), 2, member))
	f.Add(wire.AppendBytes(wire.AppendNumber(nil, 2, int64(1)), 3, wire.AppendBytes(nil, 1, wire.AppendBytes(nil, 2, key))))
	f.Add([]byte("\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var v T
		if err := wire.Decode(b, fields(&v)); err != nil && !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("error %v", err)
		}
		if !check(v) {
			t.Errorf("%+v", v)
		}
	})
}

func texts(all ...string) bool {
	for _, s := range all {
		if !utf8.ValidString(s) {
			return false
		}
	}
	return len(all) <= 1000
}

func FuzzMembers(f *testing.F) {
	fuzzFields(f, memberList, func(all []Member) bool {
		for _, m := range all {
			if !texts(m.Name) || !texts(m.PeerURLs...) || !texts(m.ClientURLs...) {
				return false
			}
		}
		return len(all) <= 1000
	})
}

func FuzzStatus(f *testing.F) {
	fuzzFields(f, status, func(s Status) bool { return texts(s.Version) && texts(s.Errors...) })
}

func FuzzAlarms(f *testing.F) {
	fuzzFields(f, alarms, func(all []Alarm) bool { return len(all) <= 1000 })
}

func FuzzKeys(f *testing.F) {
	fuzzFields(f, rangeFields, func(all []KeyValue) bool {
		kv, err := single(all, "a")
		return kv == nil || err == nil && kv.Key == "a" && kv.ModRevision > 0
	})
}

func FuzzResult(f *testing.F) {
	type changed struct {
		Result
		found []KeyValue
	}
	fuzzFields(f, func(c *changed) wire.Fields { return result(&c.Result, &c.found) }, func(c changed) bool {
		return c.Current == nil && len(c.found) <= 1000
	})
}

func FuzzLease(f *testing.F) {
	fuzzFields(f, func(id *Lease) wire.Fields { return wire.Fields{2: wire.Number(id)} }, func(Lease) bool { return true })
}

func FuzzFrame(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x00\x01a"))
	f.Add([]byte("\x01\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := message(body)
		whole := len(body) >= 5 && body[0] == 0 && uint64(binary.BigEndian.Uint32(body[1:])) == uint64(len(body)-5)
		if (err == nil) != whole || err == nil && string(m) != string(body[5:]) || err != nil && !errors.Is(err, ErrAnswer) {
			t.Errorf("%q, %v of %q", m, err, body)
		}
	})
}
