// SPDX-License-Identifier: Apache-2.0

// Package frame carries requests and replies between our processes of one host: the format of a frame,
// a server that answers peers on a unix socket that systemd listens on, and a client of such a server.
// It knows nothing of what is asked; each server brings its own requests, replies and Limits.
//
// # Protocol
//
// A stream of frames, a request and its reply in turn. A frame is one byte with the protocol's version
// (1), the length of its JSON and that of its contents (four bytes each, big-endian), the JSON, and the
// contents of all files, one after another. Contents are not in the JSON, because to decode them from
// base64 takes longer than to bring them to the disk. Unknown fields are errors.
//
// # What a hostile peer can cost
//
// A server refuses other users before it reads a byte of theirs. A frame that is larger than its Limits
// is refused by its head. Memory of more than 512 KiB is given to one frame at a time, whatever the
// number of peers, and the JSON is counted before it is decoded, because a short text can ask for many
// values. A peer that stops in the middle is hung up on after ten seconds. What is not promised: a peer
// that may speak can take up all connections, and so keep others out.
//
// Sources: unix(7) for SO_PEERCRED, sd_listen_fds(3), sd-daemon(3) for the priority prefixes.
package frame
