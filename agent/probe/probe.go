// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"syscall"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/clock"
	"github.com/node-cert-agent/node-cert-agent/agent/liveness"
	"github.com/node-cert-agent/node-cert-agent/agent/printable"
)

const (
	// firstPause comes after the first look; each further one is twice as long, up to longestPause. A
	// kubelet of 1.36 accepts clients of a renamed file within 20 ms and announces it within a minute.
	firstPause   = 25 * time.Millisecond
	longestPause = 5 * time.Second
	// lookTimeout bounds one handshake.
	lookTimeout = 5 * time.Second
)

// Prober asks consumers. It is safe for concurrent use.
type Prober struct{ Clock clock.Clock }

// Probe asks until the consumer is seen to use the content, it is clear that it cannot be told, or
// the timeout is over, and gives the last answer: Live, Stale or Unknown. Without a timeout it asks once.
// When ctx ends it returns at once, and the answer means nothing.
func (p Prober) Probe(ctx context.Context, c liveness.Consumer, want liveness.ProbeTarget,
	timeout time.Duration) liveness.ProbeResult {
	deadline := p.Clock.Now().Add(timeout)
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		s := look(ctx, c.Address)
		proof := judge(c, want, s, p.Clock.Now())
		left := deadline.Sub(p.Clock.Now())
		if proof.State != liveness.Waiting && s.fault == "" || left <= 0 {
			return settle(c, proof)
		}
		select {
		case <-ctx.Done():
			return proof
		case <-p.Clock.After(min(pause, left)):
		}
	}
}

// settle says what it means that there is no time left.
func settle(c liveness.Consumer, p liveness.ProbeResult) liveness.ProbeResult {
	if p.State != liveness.Waiting {
		return p
	}
	p.State = liveness.Stale
	if c.Mismatch == liveness.Unknown {
		p.State = liveness.Unknown
		p.Reason += ", which may be what it started with"
	}
	return p
}

// Leaf is the certificate that a server of this host serves, in DER. It believes nothing of what it sees. The error is
// the fact that keeps it from being seen, as one line.
func Leaf(ctx context.Context, address string) ([]byte, error) {
	s := look(ctx, address)
	if s.fault == "" && len(s.chain) == 0 {
		s.fault = "no certificate was served"
	}
	if s.fault != "" {
		return nil, errors.New(s.fault)
	}
	return s.chain[0], nil
}

// look is see for as long as ctx lasts. The handshake goes on after that, within its own bounds: one that is
// broken off would be an error in the server's log, at each rotation that follows quickly upon another.
func look(ctx context.Context, address string) sighting {
	seen := make(chan sighting, 1)
	go func() { seen <- see(context.WithoutCancel(ctx), address) }()
	select {
	case s := <-seen:
		return s
	case <-ctx.Done():
		return sighting{fault: "nobody waits for it any more"}
	}
}

// see connects, takes in what the server shows of itself, and leaves.
func see(ctx context.Context, address string) (s sighting) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return sighting{fault: "nothing listens there"}
	}
	if err != nil {
		return sighting{fault: printable.Text(err.Error())}
	}
	defer func() { _ = conn.Close() }()
	session := tls.Client(conn, &tls.Config{
		// Nothing is sent to this server and nothing it says is believed: it is looked at. Its
		// certificate is part of what is seen.
		InsecureSkipVerify: true, //nolint:gosec // see above
		VerifyConnection: func(c tls.ConnectionState) error {
			for _, cert := range c.PeerCertificates {
				s.chain = append(s.chain, cert.Raw)
			}
			return nil
		},
		GetClientCertificate: func(r *tls.CertificateRequestInfo) (*tls.Certificate, error) {
			s.asked, s.names = true, r.AcceptableCAs
			return new(tls.Certificate), nil // none
		},
	})
	// A server may end the handshake because it got no certificate. It has said what it accepts then.
	if err := session.HandshakeContext(ctx); err != nil && !s.asked {
		s.fault = printable.Text("no TLS handshake: " + err.Error())
	} else if err == nil {
		_ = session.Close() // in order, so that the server has nothing to log
	}
	return s
}
