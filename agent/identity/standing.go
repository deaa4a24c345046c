// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"bytes"
	"context"
	"net/http"
	"time"
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

// Ask asks the API server once, and changes nothing there.
func (i *Identity) Ask(ctx context.Context) Standing {
	l := &link{server: i.server, rt: i.client.Transport}
	if l.server.Path == "" {
		l.server.Path = "/" // or JoinPath makes a relative path
	}
	p := api{clock: system{}}
	who := p.whoami(ctx, l)
	s := Standing{Status: who.status, Reason: who.reason, Untrusted: who.untrusted, Date: who.date, User: who.user}
	if who.status >= http.StatusOK && who.status < http.StatusMultipleChoices {
		may := p.mayAsk(ctx, l)
		s.MayAsk, s.AskReason = may.allowed, may.reason
	}
	return s
}

// Trusting is the same identity with these CAs in PEM beside those that it came with: see Keeper.Trust.
func (i *Identity) Trusting(bundle []byte) (*Identity, error) {
	c := i.config
	c.trusted = bundle
	l, err := newLink(c)
	if err != nil {
		return nil, err
	}
	return &Identity{config: c, client: newClient(l.rt), server: i.server}, nil
}

// Certificate is the client certificate in PEM, without its key; nil if the identity has none or it
// cannot be read.
func (i *Identity) Certificate() []byte {
	t := i.config.transport.TLS
	data := t.CertData
	if len(data) == 0 && t.CertFile != "" {
		data, _ = readFile(t.CertFile) // what cannot be read is said by whoever connects
	}
	return bytes.Clone(data)
}
