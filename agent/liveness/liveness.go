// SPDX-License-Identifier: Apache-2.0

// Package liveness has the types for whether a server of this host uses what is on disk: who is asked and how
// (Consumer), what about (ProbeTarget), and the answer (ProbeResult).
//
// It asks nobody and decides nothing: package probe asks, and package consumers knows when. It does not touch the
// world.
package liveness

import "github.com/node-cert-agent/node-cert-agent/agent/pki"

// Kind is what a consumer can be asked over TLS, without credentials, to learn whether it uses
// the bytes of a file.
type Kind string

// The kinds that exist.
const (
	// ClientCA asks for the names of the CAs whose client certificates the server accepts: they have
	// to be the subjects of the file's bundle, each as often as there.
	ClientCA Kind = "clientCA"
	// Serving asks for the certificate that is served: it has to be the first one of the file.
	Serving Kind = "serving"
	// APIServer asks for the served chain: it has to verify with the file's bundle.
	APIServer Kind = "apiserver"
)

// Consumer is one who uses a managed file, and how it is asked. It comes from root-owned configuration
// only.
type Consumer struct {
	Kind Kind
	// Address is an IP address of this host and a port.
	Address string
	// Others is set if a ClientCA server announces the CAs of other files too, as a kube-apiserver
	// does with those of its front proxy.
	Others bool
	// Mismatch is what it means that the consumer does not show the file's bytes for good: Stale, or
	// Unknown where what it shows may be older than what it uses.
	Mismatch State
}

// ProbeTarget is what a consumer is asked about: what a file holds, and held.
type ProbeTarget struct {
	Certs []pki.Cert
	// Older is what a consumer may still use: what the file held since the consumer was last seen live,
	// then included.
	Older [][]pki.Cert
}

// State says whether a consumer uses what is on disk.
type State string

// A consumer was seen to use the bytes; does not show them, and there is time left; still does not;
// or could not be asked in a way that proves either.
const (
	Live    State = "live"
	Waiting State = "waiting"
	Stale   State = "stale"
	Unknown State = "unknown"
)

// ProbeResult is the answer, and Reason the fact behind it: one line, safe to print.
type ProbeResult struct {
	State  State
	Reason string
}
