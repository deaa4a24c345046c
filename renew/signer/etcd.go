// SPDX-License-Identifier: Apache-2.0

package signer

import "github.com/node-cert-agent/node-cert-agent/renew/pair"

// isForEtcd tells whether a pair is the one with which this host's service speaks to etcd.
func (h *handler) isForEtcd(f pair.Facts) bool {
	p, err := h.Load()
	if err != nil || p.Mode != pair.ModeRenew {
		return false
	}
	seen, err := h.Host.Inspect()
	client, ok := pair.EtcdClient(seen.Pairs)
	return err == nil && ok && client.Name == f.Name
}
