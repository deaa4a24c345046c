// SPDX-License-Identifier: Apache-2.0

// Package renewal tests the renewal of a control plane on three real members of etcd: each host is a directory with its
// pairs, a signer behind its socket, and a service that renews what is due. A load asks all members all the time.
//
// It owns nothing beside its tests, which carry the build tag real. All members listen on addresses of the loopback.
package renewal
