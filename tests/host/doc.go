// SPDX-License-Identifier: Apache-2.0

// Package host tests what needs a systemd and no cluster: the hosts of tests/harness/host themselves,
// and on them our units, the reloader and the sandboxes, with this machine's systemd and the next
// version. Its hosts are real ones; programs in testdata stand in for the agent where it has to fail.
package host
