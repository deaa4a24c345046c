// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"cmp"
	"context"
	"math/rand/v2"
	"net"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/bootstrap"
	"github.com/node-cert-agent/node-cert-agent/agent/clock"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/secret"
)

// Bootstrap is where the host keeps bootstrap credentials.
type Bootstrap interface {
	// Bootstrap gives the credentials in the order in which they are to be tried.
	Bootstrap(context.Context) ([]bootstrap.Credential, error)
	// Consume takes a credential out of use after it has served, as the host's configuration wants it,
	// and says in a word what was done; nothing if there is no such file any more.
	Consume(ctx context.Context, digest plan.Digest) (done string, err error)
}

// Options say how an identity is got and kept.
type Options struct {
	// Node is the name of this node in the cluster. Without it there is no identity to ask for.
	Node string
	// Lifetime is what is asked for; the issuer may shorten it. At least 10 minutes (Kubernetes).
	Lifetime time.Duration
	// Dir is the state directory.
	Dir Dir
	// Bootstrap is asked for credentials; nil means that there are none.
	Bootstrap Bootstrap
	// Pins are the keys of the cluster's CAs, sha256:<hex> over SubjectPublicKeyInfo. With them a
	// bootstrap file need not state a CA, and one that no longer verifies the server is no end.
	Pins []string
	// FollowHint lets the ControllerConfig announce another cluster: see Manager.Hint.
	FollowHint bool
	// Credential is a kubeconfig that systemd handed over; it is tried after the files.
	Credential secret.Bytes
	Trail      audit.Recorder
	Times      Times
	// Clock and Rand (in [0,1)) are the system's if nil, and Dial, which connects to a server or a proxy.
	Clock clock.Clock
	Rand  func() float64
	Dial  func(ctx context.Context, network, address string) (net.Conn, error)

	// renewal replaces the function of that name in tests.
	renewal func(*generation) time.Time
}

// Times are the durations of an identity's life. Zero means the default.
type Times struct {
	// PollInterval is how often bootstrap files are looked for while there is no identity (10 s), and IdlePollInterval
	// while there is one (1 h).
	PollInterval, IdlePollInterval time.Duration
	// CheckInterval is how often an identity that nobody complains about is proven again (10 min): a watch
	// that is open says nothing about it.
	CheckInterval time.Duration
	// Forbidden is how long something may be forbidden before the identity is probed (5 s).
	Forbidden time.Duration
	// SuspectAfter is how long the server has to refuse an identity before another is asked for (2 min).
	SuspectAfter time.Duration
	// DeniedMin and DeniedMax bound the pause after a denial (5 min, 1 h).
	DeniedMin, DeniedMax time.Duration
	// RetryMin and RetryMax bound the pause after a failed request (1 s, 30 s).
	RetryMin, RetryMax time.Duration
	// ApprovalPollMin and ApprovalPollMax bound the pause between two polls of a request (100 ms, 1 min). It grows
	// slowly, see pollDelay.
	ApprovalPollMin, ApprovalPollMax time.Duration
	// Prove is how long a new certificate may be unknown to the server (10 min).
	Prove time.Duration
	// Refused is how long a credential that the server does not know is left alone (10 min).
	Refused time.Duration
	// Retire is how long the connections of a replaced identity may finish what they do (10 s).
	Retire time.Duration
}

func (t Times) withDefaults() Times {
	for d, otherwise := range map[*time.Duration]time.Duration{
		&t.PollInterval: 10 * time.Second, &t.IdlePollInterval: time.Hour, &t.CheckInterval: 10 * time.Minute,
		&t.Forbidden: 5 * time.Second, &t.SuspectAfter: 2 * time.Minute,
		&t.DeniedMin: 5 * time.Minute, &t.DeniedMax: time.Hour, &t.RetryMin: time.Second, &t.RetryMax: 30 * time.Second,
		&t.ApprovalPollMin: 100 * time.Millisecond, &t.ApprovalPollMax: time.Minute, &t.Prove: 10 * time.Minute,
		&t.Refused: 10 * time.Minute, &t.Retire: 10 * time.Second,
	} {
		if *d == 0 {
			*d = otherwise
		}
	}
	return t
}

func (o Options) withDefaults() Options {
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	if o.Rand == nil {
		o.Rand = rand.Float64
	}
	o.Lifetime = cmp.Or(o.Lifetime, 7*24*time.Hour)
	if o.renewal == nil {
		o.renewal = func(g *generation) time.Time { return renewal(g.leaf, g.Received) }
	}
	o.Times = o.Times.withDefaults()
	return o
}
