// SPDX-License-Identifier: Apache-2.0

package signer

import (
	"github.com/node-cert-agent/node-cert-agent/agent/frame"
	"github.com/node-cert-agent/node-cert-agent/renew/inspect"
	"github.com/node-cert-agent/node-cert-agent/renew/issue"
	"github.com/node-cert-agent/node-cert-agent/renew/pair"
)

// What a frame may be. No request carries bytes of a file but a certificate that has to be the successor of one, and no
// reply those of a key.
var (
	requests = frame.Limits{Text: 64 << 10, Values: 1024}
	replies  = frame.Limits{Text: 4 << 20, Values: 1 << 17}
)

// request holds exactly one thing that is asked for.
type request struct {
	// Inspect asks what there is on the host.
	Inspect bool `json:"inspect,omitempty"`
	// Renew replaces a pair by its successor, which then waits for Keep or Restore.
	Renew *Change `json:"renew,omitempty"`
	// Keep says that the new pair was proven, Restore that it was not.
	Keep    *Change `json:"keep,omitempty"`
	Restore *Change `json:"restore,omitempty"`
	// Restart ends who started before a pair was changed, and reads it only then. Only root may have it.
	Restart *Change `json:"restart,omitempty"`
	// Abandon names the pair that waits and that somebody else changed meanwhile. It waits no longer. Only root may have
	// it.
	Abandon string `json:"abandon,omitempty"`
	// Request asks for the text with which a host that has the CA's key can be asked for the successor of a pair.
	Request *Change `json:"request,omitempty"`
	// Issue asks for the certificate that such a text of another host is for, in PEM.
	Issue *Issue `json:"issue,omitempty"`
	// Install replaces a pair by the certificate that another host issued, and the key of the request for it. It then
	// waits for Keep or Restore.
	Install *Install `json:"install,omitempty"`
	// Sign asks for the signature with which a client proves in TLS 1.3 that it has the key of a pair.
	Sign *Handshake `json:"sign,omitempty"`
}

// Change is what a request is about.
type Change struct {
	Pair string `json:"pair"`
	// Leaf is the SHA-256 of the certificate that the caller has seen, in hexadecimal. If there is another one now, the
	// request is refused.
	Leaf string `json:"leaf"`
	// Force renews what is not due, and restores what has almost ended. Only root may have it.
	Force bool `json:"force,omitempty"`
}

// MaxRequest bounds a request of another host and what answers it, in bytes.
const MaxRequest = issue.MaxRequest

// Issue is what another host asks for.
type Issue struct {
	// Request is the text of an issue.Request.
	Request []byte `json:"request"`
	// Force issues what is not due, and what follows a certificate that has ended. Only root may have it.
	Force bool `json:"force,omitempty"`
}

// Install is what another host answered.
type Install struct {
	Change
	// Certificate is PEM.
	Certificate []byte `json:"certificate"`
}

// Handshake is the end of a TLS 1.3 handshake.
type Handshake struct {
	Pair string `json:"pair"`
	// Message is what RFC 8446 4.4.3 says that a client signs, whole.
	Message []byte `json:"message"`
	// Hash is the number of the signature's hash function, as package crypto counts; 0 for Ed25519.
	Hash uint `json:"hash,omitempty"`
}

// parts counts what a request asks for.
func (q request) parts() (n int) {
	for _, asked := range []bool{q.Inspect, q.Renew != nil, q.Keep != nil, q.Restore != nil, q.Restart != nil,
		q.Abandon != "", q.Request != nil, q.Issue != nil, q.Install != nil, q.Sign != nil} {
		if asked {
			n++
		}
	}
	return n
}

type reply struct {
	Inspection *inspect.Inspection `json:"inspection,omitempty"`
	// Facts are those of the pair after Renew, Keep and Restore.
	Facts *pair.Facts `json:"facts,omitempty"`
	// Text answers Request and Issue.
	Text []byte `json:"text,omitempty"`
	// Signature answers Sign.
	Signature []byte `json:"signature,omitempty"`
	Error     *Error `json:"error,omitempty"`
}

// Reason says what a caller can do about an Error.
type Reason string

// The reasons. What is Refused asks for what is not allowed, and asking again does not help. What Failed could not be
// done. Where the signer is Unavailable, nobody answered, and what became of the request is unknown.
const (
	Refused     Reason = "refused"
	Failed      Reason = "failed"
	Unavailable Reason = "unavailable"
)

// Error is how every method of Client fails. Detail is one line and holds no content of files.
type Error struct {
	Reason Reason `json:"reason"`
	Detail string `json:"detail"`
}

// Error implements error.
func (e *Error) Error() string { return "signer " + string(e.Reason) + ": " + e.Detail }
