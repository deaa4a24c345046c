// SPDX-License-Identifier: Apache-2.0

package pair

import (
	"cmp"
	"slices"
	"strings"
)

// order is that in which pairs are renewed: what only clients of others show comes first, a pair that others depend
// on comes late, and the kubeconfigs whose users have to start again come last.
var order = []string{"apiserver-etcd-client", "etcdctl-etcd-client", "etcd-healthcheck-client",
	"apiserver-kubelet-client", "front-proxy-client", "etcd-peer", "etcd-server", "apiserver", "admin.conf",
	"super-admin.conf", "controller-manager.conf", "scheduler.conf", "kubelet.conf"}

// Sort puts pairs in that order, and those of other names behind them, by name.
func Sort(all []Facts) {
	slices.SortStableFunc(all, func(a, b Facts) int {
		return cmp.Or(cmp.Compare(rank(a.Name), rank(b.Name)), strings.Compare(a.Name, b.Name))
	})
}

func rank(name string) int {
	if i := slices.Index(order, name); i >= 0 {
		return i
	}
	return len(order)
}
