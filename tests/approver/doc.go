// SPDX-License-Identifier: Apache-2.0

// Package approver tests node-cert-controller as it is shipped: the built binary with the rights and under
// the policies of packaging/kubernetes, against a real control plane.
//
// It owns nothing beside its tests, which carry the build tag real. Nodes and their agents are played by
// requests with the credentials that they would have.
package approver
