// SPDX-License-Identifier: Apache-2.0

package lock

import (
	"bytes"

	"github.com/node-cert-agent/node-cert-agent/agent/printable"
	"github.com/node-cert-agent/node-cert-agent/renew/etcd"
)

// ours says whether the lock is work of the host with that name, of this process or an earlier one. The name is
// enough: one process of a host renews, and what an earlier one began is in the host's journal, not in its memory. A
// claim is never ours by its name: whoever made it knows its revision.
func (h *Holder) ours(host string) bool {
	return h != nil && h.Phase == Work && h.Host == printable.Text(host)
}

// outcome is what became of a change of the lock.
type outcome int

const (
	// done: the lock is as wanted.
	done outcome = iota
	// again: the host's own earlier change has come in between, late. The same change is to be made from there.
	again
	// gone: the lock was not what the change was to begin from, and is nobody's or somebody else's.
	gone
)

// judge is what became of a change from a revision that etcd answered. A claim, which begins from none, never replaces
// work, not even the host's own: it may stand for a pair that is changed.
func judge(r etcd.Result, current *Holder, from int64, host string) outcome {
	switch {
	case r.Done:
		return done
	case from != 0 && current.ours(host):
		return again
	}
	return gone
}

// written says whether a change to which no answer came was made: what is there is what was wanted, byte for byte, and
// was written after what it was to replace. If it was not made, it still may be, since the request can be late.
func written(kv *etcd.KeyValue, ch etcd.Change) bool {
	return kv != nil && kv.ModRevision > ch.From && kv.Lease == ch.Lease && bytes.Equal(kv.Value, ch.Value)
}
