// SPDX-License-Identifier: Apache-2.0

// Package etcdclient compares renew/etcd, and the etcd of its tests, with etcd's own client library on a real etcd: what
// one writes the other reads, and both see the same members, leases and alarms, with and without authentication. On that
// etcd it also has processes use renew/lock, while it stops, kills and cuts them off.
//
// It is a module of its own, so that the product's go.mod does not name that library, which the agent must not link.
package etcdclient
