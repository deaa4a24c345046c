// SPDX-License-Identifier: Apache-2.0

// Package controlplane tests the control plane that other tests use, tests/harness/controlplane: that it
// is a real one, that it does what an administrator may ask of it, and that it leaves no process and no
// file behind, also where the test that started it is killed.
package controlplane
