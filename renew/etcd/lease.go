// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"fmt"
	"time"

	"github.com/node-cert-agent/node-cert-agent/renew/etcd/wire"
)

// Lease is the id of a lease. Keys under it go with it.
type Lease int64

// Grant makes a lease that ends after ttl, of which whole seconds count, unless it is kept alive.
func (c *Client) Grant(ctx context.Context, ttl time.Duration) (id Lease, err error) {
	err = c.call(ctx, "Lease/LeaseGrant", wire.AppendNumber(nil, 1, int64(ttl/time.Second)),
		wire.Fields{2: wire.Number(&id)})
	if err == nil && id == 0 {
		err = fmt.Errorf("asking etcd at %s for Lease/LeaseGrant: %w: no lease", c.endpoint, ErrAnswer)
	}
	return id, err
}

// KeepAlive lets a lease begin anew and says how long it lasts then; 0 means that there is no such lease (any more).
func (c *Client) KeepAlive(ctx context.Context, id Lease) (ttl time.Duration, err error) {
	var seconds int64
	// This is a stream of questions and answers, of which one is enough.
	err = c.call(ctx, "Lease/LeaseKeepAlive", wire.AppendNumber(nil, 1, id), wire.Fields{3: wire.Number(&seconds)})
	return time.Duration(min(max(seconds, 0), maxTTL)) * time.Second, err
}

// maxTTL is the longest that etcd grants, in seconds (its lessor's maxLeaseTTL).
const maxTTL = 9_000_000_000

// Revoke ends a lease and deletes the keys under it. That there is no such lease is a StatusError with NotFound.
func (c *Client) Revoke(ctx context.Context, id Lease) error {
	return c.call(ctx, "Lease/LeaseRevoke", wire.AppendNumber(nil, 1, id), nil)
}
