// SPDX-License-Identifier: Apache-2.0

// Package publisher tests the publisher against a real control plane, with the rights that
// packaging/kubernetes/components/publisher grants and no others.
//
// It owns nothing beside its tests, which carry the build tag real. What other controllers write, trust-manager
// among them, is played by kubectl.
package publisher
