// SPDX-License-Identifier: Apache-2.0

package reloader

import (
	"github.com/node-cert-agent/node-cert-agent/agent/frame"
	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
)

// Limits of a request: the names of maxUnits units. Of a reply: what systemd says of them, with long lists
// of affected units. Neither has contents.
var (
	requests = frame.Limits{Text: 16 << 10, Values: 2 * maxUnits}
	replies  = frame.Limits{Text: 1 << 20, Values: 1 << 14}
)

// maxUnits is the largest number of units in one request.
const maxUnits = 32

// request asks for exactly one thing.
type request struct {
	Observe []string `json:"observe,omitempty"`
	Act     string   `json:"act,omitempty"`
	Version bool     `json:"version,omitempty"`
}

// parts counts what a request asks for.
func (q request) parts() (n int) {
	for _, asked := range []bool{len(q.Observe) > 0, q.Act != "", q.Version} {
		if asked {
			n++
		}
	}
	return n
}

// reply answers a request. States travel without their Boot: the reloader sees no boot ID, and the client
// is on the same host.
type reply struct {
	// Seen answers Observe, unit by unit.
	Seen []Seen `json:"seen,omitempty"`
	// Done answers Act.
	Done *done `json:"done,omitempty"`
	// Version answers Version.
	Version string `json:"version,omitempty"`
	Error   *Error `json:"error,omitempty"`
}

// done is an action that succeeded.
type done struct {
	// Verb is the configured one, by which it was done.
	Verb  unitplan.Verb  `json:"verb"`
	State unitplan.State `json:"state"`
}
