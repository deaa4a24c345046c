// SPDX-License-Identifier: Apache-2.0

// Package identity is how the agent authenticates to the API server: from a bootstrap credential to a
// certificate of its own, its renewal, and back whenever it is lost (Manager). Everybody else speaks through the one
// client of the Manager, behind which the identity changes without a restart.
//
// It promises that a working identity stays until its successor has been proven on a fresh connection,
// that one key waits in one request however long nobody approves it, and that no bootstrap credential
// is consumed before the identity got with it is durable and proven. What is missing is a state with a
// reason. It decides nothing about files: credentials come from, and are consumed through, Bootstrap. Where
// the ControllerConfig announces another cluster, only our own certificate asks there. No secret is in an error.
//
// How a server is reached and verified is agent/apiserver's matter.
//
// Sources: the reference of CertificateSigningRequest and SelfSubjectReview in the Kubernetes API.
package identity

import (
	"context"
	"fmt"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/apiserver"
	"github.com/node-cert-agent/node-cert-agent/agent/clock"
)

// Load reads the identity that a Manager keeps in dir, for a command that runs beside it: it is neither renewed
// nor changed. The error matches fs.ErrNotExist if there is none.
func Load(dir Dir, node string) (*apiserver.Conn, error) {
	data, err := dir.ReadFile(currentFile)
	if err != nil {
		return nil, err
	}
	g, err := decodeGeneration(data, node)
	if err != nil {
		return nil, fmt.Errorf("%s %v", currentFile, err)
	}
	c, err := g.config()
	if err != nil {
		return nil, fmt.Errorf("%s %v", currentFile, err)
	}
	conn, err := c.Open()
	if err != nil {
		return nil, fmt.Errorf("%s: %v", currentFile, err)
	}
	return conn, nil
}

// ServerView is what an API server says of an identity. What it quotes of the server has to be escaped.
type ServerView struct {
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

// Review asks the API server once as whom it knows the client of c, and changes nothing there.
func Review(ctx context.Context, c *apiserver.Conn) ServerView {
	p := api{clock: clock.System{}}
	who := p.whoami(ctx, c)
	s := ServerView{Status: who.status, Reason: who.reason, Untrusted: who.untrusted, Date: who.date, User: who.user}
	if who.verdict() == accepted {
		may := p.mayAsk(ctx, c)
		s.MayAsk, s.AskReason = may.allowed, may.reason
	}
	return s
}
