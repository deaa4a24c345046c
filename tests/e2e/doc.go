// SPDX-License-Identifier: Apache-2.0

// Package e2e tells the product's stories on real parts: etcd, kube-apiserver and
// kube-controller-manager on loopback, and a host with systemd, D-Bus and journald.
//
// Each test has a control plane and a host of its own and says in its name what an operator may rely
// on. Waiting is for states, with a bound that is no measure of speed. It needs root and the build
// tag real; a missing part is a failure.
package e2e
