// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/apiserver"
	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/csr"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// Status is what is known of the identity now.
type Status struct {
	State State
	// Reason is the fact behind State, in one line; it quotes the server and has to be escaped.
	Reason string
	// Usable is set while there is an identity, doubted or not: requests go through.
	Usable bool
	// Certificate is what is in use: its serial number in hexadecimal, its end, and when it will be
	// renewed. Serial is empty without one.
	Serial string
	// PublicKey is the SHA-256 of its SubjectPublicKeyInfo in hexadecimal.
	PublicKey      string
	Issued         time.Time
	Expires, Renew time.Time
}

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
	turned    chan int
	swapped   chan struct{}
	hints     chan string
	trusts    chan []byte
	readings  chan Status
	retiring  sync.WaitGroup

	loaded   bool
	state    State
	reason   string
	renewing bool
	moving   bool // to another cluster, from one where the identity works
	current  *generation
	previous *generation
	pending  *pending
	request  request     // of pending, once it was built
	asker    *credential // who asks; nil while renewing
	fresh    *generation // what is to be proven

	ladder   ladder
	looked   time.Time
	reported map[string]bool // files whose refusal is on record

	trust        []byte      // beside what the cluster in use came with
	wanted       []byte      // what was last published
	refusedTrust atomic.Bool // wanted is not trust: it did not verify the server when that was tried

	heard  string // the hint's text
	hint   *hint  // and what it says
	remark string // what came of it

	failures, denials int       // in a row
	looks             int       // at a request that nobody has decided about
	again             bool      // another key is made for the next request
	penalty           time.Time // a denial forbids another request until then
	barred            time.Time // a renewal that fails gives way to a move until then
	doubt             time.Time // since when the server has refused the identity
	renew, probe      time.Time
	prove             time.Time // until when an unknown new certificate is given time
	complaint         int       // the status that others met since the last probe
	vanished          int       // how often a request of ours was gone
	consumed          bool
	proven            bool   // the identity in use, by this process
	renewable         bool   // the server said that a renewal would be allowed
	warning           string // or that it would not
	leftover          string // why the credential is not consumed
}

// New makes a Keeper; Run makes it work.
func New(o Options) *Keeper {
	o = o.withDefaults()
	k := &Keeper{opt: o, api: api{o.Clock}, store: store{o.Dir, o.Node}, state: NoCredential, turned: make(chan int, 1),
		swapped: make(chan struct{}, 1), hints: make(chan string, 1), trusts: make(chan []byte, 1), readings: make(chan Status, 1), reported: make(map[string]bool)}
	k.pins = apiserver.ParsePins(o.Pins)
	k.ladder.pinned, k.ladder.connect = len(k.pins) > 0, k.connect
	k.transport = apiserver.NewRotating(func(status int) {
		if status == 0 && len(k.pins) == 0 && !k.refusedTrust.Load() {
			return // asking again would not help
		}
		select {
		case k.turned <- status:
		default:
		}
	})
	return k
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

// Run keeps the identity until ctx ends. It must be called once.
func (k *Keeper) Run(ctx context.Context) {
	for ctx.Err() == nil {
		wait := k.step(ctx)
		turned := k.turned
		if k.state != Active {
			turned = nil // the doubt is being looked into, or nobody was trusted to begin with
		}
		select {
		case <-ctx.Done():
		case <-k.opt.Clock.After(wait):
		case status := <-turned:
			k.probe, k.complaint = k.opt.Clock.Now(), status
		case bundle := <-k.trusts:
			k.retrust(ctx, bundle)
		case text := <-k.hints:
			k.heed(text)
		}
	}
	k.retiring.Wait()
	if c := k.transport.Swap(nil); c != nil {
		c.Close()
	}
	k.ladder.climb(nil, nil, nil)
}

// move is the outcome of one step: the state that follows, the fact behind it, and when to go on.
type move struct {
	to     State
	reason string
	wait   time.Duration
}

// step does what the present state asks for and returns how long to wait before the next step.
func (k *Keeper) step(ctx context.Context) time.Duration {
	if !k.loaded {
		if err := k.load(ctx); err != nil {
			return k.enter(move{NoCredential, err.Error(), k.opt.Times.Look})
		}
		// What there is, is there for others before anybody is asked for more.
		return k.enter(move{k.state, "", 0})
	}
	k.look(ctx)
	k.giveWay(ctx)
	act := map[State]func(context.Context) move{NoCredential: k.noCredential, Requesting: k.requesting, Pending: k.waiting,
		Proving: k.proving, Active: k.active, Suspect: k.suspect}
	return k.enter(act[k.state](ctx))
}

// giveWay decides between a renewal that is due and a move. What works comes first, and the move begins again
// after it. But a renewal that fails may have no chance where we are, and what leads elsewhere is there to end
// that: it has the time until barred, and then the renewal is tried again.
func (k *Keeper) giveWay(ctx context.Context) {
	now := k.opt.Clock.Now()
	barred := now.Before(k.barred)
	switch {
	case k.moving && !barred && !now.Before(k.renew):
		k.moving, k.state, k.penalty = false, Active, time.Time{}
	case k.renewing && barred && asking(k.state):
		if c := k.elsewhere(); c != nil && (!c.announced || k.welcome(ctx, c)) {
			k.renewing, k.moving, k.state, k.penalty = false, true, Requesting, time.Time{}
		}
	}
}

// enter makes the move and publishes what can be seen of it.
func (k *Keeper) enter(m move) time.Duration {
	if m.to != k.state && m.to == Suspect {
		k.tell(audit.IdentitySuspect, "the API server refuses this node's identity", audit.Field{Name: audit.Reason, Value: m.reason})
	}
	if m.to != k.state && (!asking(m.to) || !asking(k.state)) {
		k.failures = 0
	}
	k.state, k.reason = m.to, m.reason
	k.publish()
	return max(m.wait, 0)
}

// asking tells the two states between which a request goes to and fro while the server does not answer as it
// should. What fails there fails in a row, until an answer is accepted.
func asking(s State) bool { return s == Requesting || s == Pending }

func (k *Keeper) publish() {
	s := Status{State: k.state, Reason: k.reason, Usable: k.current != nil}
	if (k.renewing || k.moving) && s.State != Active && s.State != Suspect {
		s.State = Renewing
	}
	if k.current != nil {
		leaf := k.current.leaf
		key := sha256.Sum256(leaf.RawSubjectPublicKeyInfo)
		s.Serial, s.PublicKey = leaf.SerialNumber.Text(16), hex.EncodeToString(key[:])
		s.Issued, s.Expires, s.Renew = leaf.NotBefore, leaf.NotAfter, k.renew
	}
	select {
	case <-k.readings:
	default:
	}
	k.readings <- s // there is room: nobody else sends
}

// tell leaves an audit record. What others said is escaped and cut.
func (k *Keeper) tell(kind audit.Kind, message string, fields ...audit.Field) {
	r := audit.Record{Kind: kind, Message: plan.Printable(message)}
	for _, f := range fields {
		r = r.With(f.Name, plan.Printable(f.Value))
	}
	k.opt.Trail.Record(r)
}

// user is who we want to be.
func (k *Keeper) user() string { return csr.User(k.opt.Node) }
