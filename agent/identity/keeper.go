// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"net/http"
	"net/url"
	"sync"

	"github.com/node-cert-agent/node-cert-agent/agent/apiserver"
	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/csr"
	"github.com/node-cert-agent/node-cert-agent/agent/printable"
)

// Keeper gets an identity and keeps it: from a bootstrap credential over a request for a certificate
// to the proof that the API server knows us by it, and back whenever that ends. Make it with New.
//
// It never gives up and never exits; what is missing is a state with a reason and a next try. A
// working identity stays in use until its successor has been proven on a fresh connection, and stays
// on disk beside it. Whatever it has to remember is durable before it is needed: it may be killed at
// any moment.
type Keeper struct {
	opt       Options
	pins      apiserver.Pins
	api       api
	store     store
	transport *apiserver.Rotating
	retiring  sync.WaitGroup // connections of replaced identities

	// What others say, and what they are told. Each holds the newest only.
	rejected chan int // the status that cast doubt on the identity
	hints    chan string
	trusts   chan []byte
	swapped  chan struct{}
	readings chan Status

	state    State
	reason   string
	current  *generation // nil if there is none
	previous *generation

	attempt     attempt
	health      health
	migration   migration
	credentials credentials
	trust       trust
}

// New makes a Keeper; Run makes it work.
func New(o Options) *Keeper {
	o = o.withDefaults()
	k := &Keeper{
		opt: o, pins: apiserver.ParsePins(o.Pins), api: api{o.Clock}, store: store{o.Dir, o.Node}, state: starting,
		rejected: make(chan int, 1), hints: make(chan string, 1), trusts: make(chan []byte, 1),
		swapped: make(chan struct{}, 1), readings: make(chan Status, 1),
	}
	k.credentials = credentials{connect: k.connect, pinned: len(k.pins) > 0, reported: make(map[string]bool)}
	k.transport = apiserver.NewRotating(func(status int) {
		if status == 0 && len(k.pins) == 0 && !k.trust.refused.Load() {
			return // asking again would not help
		}
		select {
		case k.rejected <- status:
		default:
		}
	})
	return k
}

// Run keeps the identity until ctx ends. It must be called once.
func (k *Keeper) Run(ctx context.Context) {
	for ctx.Err() == nil {
		wait := k.tick(ctx)
		rejected := k.rejected
		if k.state != Active {
			rejected = nil // the doubt is being looked into, or nobody was trusted to begin with
		}
		select {
		case <-ctx.Done():
		case <-k.opt.Clock.After(wait):
		case status := <-rejected:
			k.health.probeAt, k.health.lastStatus = k.opt.Clock.Now(), status
		case bundle := <-k.trusts:
			k.setTrust(ctx, bundle)
		case text := <-k.hints:
			k.setHint(text)
		}
	}
	k.retiring.Wait()
	if c := k.transport.Swap(nil); c != nil {
		c.Close()
	}
	k.credentials.refresh(nil, nil, nil)
}

// HTTPClient goes to the API server that the identity is for, as the identity; it verifies the server,
// does not follow redirects and has no overall timeout. The certificate may change between two
// requests. Before there is an identity requests fail.
func (k *Keeper) HTTPClient() *http.Client { return k.transport.HTTPClient() }

// Server is the base URL for requests of HTTPClient. It stands for wherever the API server is.
func (k *Keeper) Server() *url.URL { return k.transport.Server() }

// Readings is where every change appears. It holds the newest only.
func (k *Keeper) Readings() <-chan Status { return k.readings }

// Swapped announces that requests now go out with another identity. Streams opened before it should be
// opened anew: they end after Times.Retire.
func (k *Keeper) Swapped() <-chan struct{} { return k.swapped }

// tell leaves an audit record. What others said is escaped and cut.
func (k *Keeper) tell(kind audit.Kind, message string, fields ...audit.Field) {
	r := audit.Record{Kind: kind, Message: printable.Text(message)}
	for _, f := range fields {
		r = r.With(f.Name, printable.Text(f.Value))
	}
	k.opt.Trail.Record(r)
}

// user is who we want to be.
func (k *Keeper) user() string { return csr.User(k.opt.Node) }
