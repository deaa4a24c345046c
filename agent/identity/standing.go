// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/apiserver"
)

// Standing is how an identity stands with its API server. What it quotes of the server has to be
// escaped.
type Standing struct {
	// Status is that of the answer to who we are; 0 means that none came. Reason is the fact behind
	// any but a success.
	Status int
	Reason string
	// Untrusted is set if a server answered that no known CA verifies.
	Untrusted bool
	// Date is the server's clock, zero if it does not tell.
	Date time.Time
	// User is as whom the server knows us.
	User string
	// MayAsk tells whether we may make requests for certificates, and AskReason why that is not known.
	MayAsk    bool
	AskReason string
}

// Ask asks the API server once how it knows whoever speaks over c, and changes nothing there.
func Ask(ctx context.Context, c *apiserver.Conn) Standing {
	p := api{clock: system{}}
	who := p.whoami(ctx, c)
	s := Standing{Status: who.status, Reason: who.reason, Untrusted: who.untrusted, Date: who.date, User: who.user}
	if who.verdict() == accepted {
		may := p.mayAsk(ctx, c)
		s.MayAsk, s.AskReason = may.allowed, may.reason
	}
	return s
}
