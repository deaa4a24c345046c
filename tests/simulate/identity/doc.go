// SPDX-License-Identifier: Apache-2.0

// Package identity walks the agent's real identity.Manager through random histories: from a token over renewals
// to other clusters and back, with API servers that fail in every way there is, and checks what the package
// promises.
//
// A walk is a setting and a list of steps. The servers are real TLS servers in memory, with an approver that
// signs, denies, issues nonsense or is away; certificates are revoked, CAs replaced, addresses taken over by an
// impostor; bootstrap files come and go; the clock is set; the process is killed at any contact with the
// outside. Time is virtual (testing/synctest). Each step draws from a seed of its own, so that a walk is
// repeatable and still means the same when steps are left out: that is how the shortest one is found that
// goes wrong.
//
// Checked are: an identity that works is never given up, nor replaced by one that does not, and stays beside the next;
// another is not asked for before the server has refused it for a while; a key is durable before a request for it
// exists; a token goes to the server that its file states and to no other, and the identity to no other cluster
// unless a hint may lead there; a server that was verified stays so; a credential is consumed after it has served
// only; the number of calls and requests is bounded; and once faults stop there is an identity soon, which is renewed
// in time from then on.
//
// The package promises nothing about real API servers and disks: tests/e2e and agent/disk do.
//
//	go test ./tests/simulate/identity                                     some seconds of it
//	go test ./tests/simulate/identity -seed 0 -duration 1h -timeout 2h    fresh walks for an hour
//	go test ./tests/simulate/identity -walk '1a | ... | ...' -v           one walk, told step by step
package identity
