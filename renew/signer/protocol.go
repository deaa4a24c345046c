// SPDX-License-Identifier: Apache-2.0

package signer

import (
	"github.com/node-cert-agent/node-cert-agent/agent/frame"
	"github.com/node-cert-agent/node-cert-agent/renew/inspect"
)

// What a frame may be. No request carries bytes of a file, and no reply does.
var (
	requests = frame.Limits{Text: 64 << 10, Values: 1024}
	replies  = frame.Limits{Text: 4 << 20, Values: 1 << 17}
)

// request holds exactly one thing that is asked for.
type request struct {
	// Inspect asks what there is on the host.
	Inspect bool `json:"inspect,omitempty"`
}

// parts counts what a request asks for.
func (q request) parts() (n int) {
	for _, asked := range []bool{q.Inspect} {
		if asked {
			n++
		}
	}
	return n
}

type reply struct {
	Inspection *inspect.Inspection `json:"inspection,omitempty"`
	Error      *Error              `json:"error,omitempty"`
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
