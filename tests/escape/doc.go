// SPDX-License-Identifier: Apache-2.0

// Package escape tests invariant I5: a fully compromised agent can publish valid bundles to configured files, run
// allowlisted actions, and act as its API identity; nothing else.
//
// A program of the tests, testdata/prisoner, runs in the place of the agent: its user, its unit, its
// sandbox, beside the real writer, reloader and systemd. It tries whatever it is given, on hosts that are
// laid out as OpenShift's and kubeadm's, and speaks the writer's protocol without the client's manners.
// Afterwards every file of the host is compared with what was there before: what was allowed has happened,
// and nothing besides; and what has happened is in the records of the privileged processes.
//
// It does not try the kernel, and the API server's side of the promise is in tests/permissions.
package escape
