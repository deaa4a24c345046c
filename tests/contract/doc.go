// SPDX-License-Identifier: Apache-2.0

// Package contract compares what we read of the object with what OpenShift's own Go types say of it:
// objects encoded with them decode to the same bytes, and a field that they gain is noticed here
// before it is missed on a node.
//
// It is a module of its own, so that the agent's go.mod does not name github.com/openshift/api, which
// the agent must not link. `make test` runs it as a part.
package contract
