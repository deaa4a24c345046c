// SPDX-License-Identifier: Apache-2.0

// Package plan decides what must change on the host. It is pure: it sees what the ControllerConfig asks for
// (Desired), what the host has (Observed), what the agent remembers (Memory) and what the
// administrator allows (Policy), and returns a Plan, which is data: it can be printed and compared
// and has no way to express a command or a path that is not in the administrator's table.
//
// The package also owns the vocabulary that the other packages share: fields and keys of the host's
// file table, digests, observations, commits. It promises that planning again after
// the plan was carried out yields an empty plan, and that nothing is ever removed that the agent
// did not durably claim.
//
// It does not read files, clocks or the network.
package plan
