// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"

	"github.com/node-cert-agent/node-cert-agent/renew/etcd/wire"
)

// Member is one member of the cluster.
type Member struct {
	ID uint64
	// Name is empty for a member that was added and has not started yet.
	Name string
	// PeerURLs and ClientURLs are where the others and clients reach it.
	PeerURLs, ClientURLs []string
	// Learner says that it has no vote yet.
	Learner bool
}

// Members are all members, as a majority knows them.
func (c *Client) Members(ctx context.Context) (all []Member, err error) {
	const linearizable = 1
	err = c.call(ctx, "Cluster/MemberList", wire.AppendNumber(nil, linearizable, uint64(1)), memberList(&all))
	return all, err
}

func memberList(to *[]Member) wire.Fields { return wire.Fields{2: wire.Repeated(to, decodeMember)} }

func decodeMember(b []byte) (m Member, err error) {
	err = wire.Decode(b, wire.Fields{
		1: wire.Number(&m.ID), 2: wire.Text(&m.Name), 3: wire.Texts(&m.PeerURLs), 4: wire.Texts(&m.ClientURLs),
		5: wire.Bool(&m.Learner),
	})
	return m, err
}
