// SPDX-License-Identifier: Apache-2.0

// Package writer is the process that changes files: the only code that writes them as root. It answers
// five requests (what is on disk, carry out this commit, sweep what a killed commit left, hand out the
// bootstrap credentials, take one of them out of use) for two kinds of caller: the unprivileged agent
// over a unix socket (Serve and Client), and the same process in plain mode (Local).
//
// A request names fields and entries, never paths, modes or owners: these come from the host's own file
// table. Every byte is validated again before it is staged, whatever the caller says of it.
//
// It promises to a caller that is fully compromised no more than to publish valid bundles to listed
// fields, to remove files whose bytes the caller knows from fields with a file for each entry, and to learn and use up
// what is in the bootstrap directory. Peers other than root and the agent's user are refused before a byte of theirs is
// read. It creates no sockets: it accepts on the listener that systemd made. It imports nothing that could reach the
// network or the bus.
//
// # Protocol
//
// Requests and replies travel as package frame says: at most 256 KiB of JSON, in which no more than 4096
// files can be named, and 8 MiB of contents. The client sends what is larger in several requests. The
// reply to an observation may answer only the first part of the queries, at least one; the client asks
// for the others anew.
//
// Sources: sd-daemon(3) for the priority prefixes.
package writer
