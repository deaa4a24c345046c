// SPDX-License-Identifier: Apache-2.0

// Package consumers has the servers that read managed files asked whether they use them, and remembers what they
// showed.
//
// Asking waits for nobody: answers come through a channel and belong to Take. An answer is void if the file was
// written again meanwhile. Whoever does not use a file is recorded and shown; nothing is done about it.
package consumers

import (
	"context"
	"slices"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/clock"
	"github.com/node-cert-agent/node-cert-agent/agent/liveness"
	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
)

// maxOlder bounds what is remembered of a file that nobody was seen to use for many versions.
const maxOlder = 8

// Prober asks the consumers of files. It is safe for concurrent use.
type Prober interface {
	// Probe asks until the consumer is seen to use the content, or cannot be told, or patience has run
	// out; without patience once. When ctx ends it returns soon and the answer means nothing.
	Probe(ctx context.Context, c liveness.Consumer, want liveness.Asked, patience time.Duration) liveness.Proof
}

// Options are what Consumers need from outside.
type Options struct {
	// Prober may be nil; nobody is asked then.
	Prober Prober
	Policy plan.Policy
	Trail  audit.Recorder
	Clock  clock.Clock
	// Timeout is how long a consumer may take to be seen with new bytes.
	Timeout time.Duration
	// Again is after how long one that is not live is asked again.
	Again time.Duration
}

// Consumers own what is known of each use of a file. One goroutine uses them.
type Consumers struct {
	Options
	uses     map[use]*usage
	answers  chan Answer
	replaced map[plan.Field]replaced
	writes   uint64
}

// use is who uses a file.
type use struct {
	field    plan.Field
	consumer liveness.Consumer
}

// usage is what is known of one use, since a write. It is void after the next.
type usage struct {
	liveness.Proof
	digest plan.Digest
	liveness.Asked
	write uint64
	since time.Time // of State
	// stop ends the asking; nil if nobody is asked.
	stop  context.CancelFunc
	again time.Time // when it is asked again unless it is live
}

// replaced is what the last write to a field put an end to.
type replaced struct {
	write  uint64
	digest plan.Digest
	certs  []pki.Cert
}

// Answer is the end of an asking about of.
type Answer struct {
	use
	of *usage
	liveness.Proof
}

// New knows nothing yet.
func New(o Options) *Consumers {
	return &Consumers{Options: o, uses: make(map[use]*usage), answers: make(chan Answer),
		replaced: make(map[plan.Field]replaced)}
}

// Replaced notes that a file was written: whoever used it may use something else now, even if the
// write only healed what somebody had done to the file in the meantime. before is what it held.
func (c *Consumers) Replaced(w plan.Write, before []pki.Cert) {
	c.writes++
	if spec, _ := c.Policy.File(w.Field); len(spec.Verify) > 0 {
		c.replaced[w.Field] = replaced{c.writes, w.Before, before}
	}
}

// Probe has the consumers of files that are in place asked whether they use them.
func (c *Consumers) Probe(ctx context.Context, inPlace []plan.Entry) {
	if c.Prober == nil {
		return
	}
	for _, e := range inPlace {
		spec, _ := c.Policy.File(e.Field)
		for _, consumer := range spec.Verify {
			c.probe(ctx, e, use{spec.Field, consumer})
		}
	}
}

func (c *Consumers) probe(ctx context.Context, e plan.Entry, u use) {
	p := c.uses[u]
	if p == nil || p.digest != e.Digest || p.write != c.replaced[u.field].write {
		p = c.renew(u, e)
	} else if p.stop != nil || p.State == liveness.Live || c.Clock.Now().Before(p.again) {
		return
	}
	patience := time.Duration(0)
	if p.State == liveness.Waiting {
		patience = c.Timeout
	}
	ctx, p.stop = context.WithCancel(ctx)
	asked := p.Asked
	go func() {
		a := Answer{u, p, c.Prober.Probe(ctx, u.consumer, asked, patience)}
		select {
		case c.answers <- a:
		case <-ctx.Done():
		}
	}()
}

// renew begins anew. Whatever is still being asked about the last proof is void.
func (c *Consumers) renew(u use, e plan.Entry) *usage {
	last, before := c.uses[u], c.replaced[u.field]
	p := &usage{Proof: liveness.Proof{State: liveness.Waiting}, digest: e.Digest, Asked: liveness.Asked{Certs: e.Certs},
		write: before.write, since: c.Clock.Now()}
	if last != nil {
		if last.stop != nil {
			last.stop()
		}
		p.Older = append(slices.Clip(last.Older), last.Certs)
	}
	if before.certs != nil && (last == nil || last.digest != before.digest) {
		p.Older = append(p.Older, before.certs)
	}
	p.Older = p.Older[max(0, len(p.Older)-maxOlder):]
	c.uses[u] = p
	return p
}

// Answers yields what was shown, which belongs to Take.
func (c *Consumers) Answers() <-chan Answer { return c.answers }

// Take takes an answer, unless it is about something that has passed. waits says for which unit that has yet to
// load the file a consumer waits, or nothing: until then nobody is called stale.
func (c *Consumers) Take(a Answer, waits func(plan.FileSpec) string) {
	p := c.uses[a.use]
	if p != a.of {
		return
	}
	p.stop()
	p.stop, p.again = nil, c.Clock.Now().Add(c.Again)
	spec, _ := c.Policy.File(a.field)
	if a.State == liveness.Live {
		p.Older = nil
	} else if why := waits(spec); why != "" {
		a.Proof, p.again = liveness.Proof{State: liveness.Waiting, Reason: why}, time.Time{}
	}
	changed := a.State != p.State
	p.Proof = a.Proof
	if !changed {
		return
	}
	p.since = c.Clock.Now()
	switch a.State {
	case liveness.Live:
		c.Trail.Record(audit.Consumption(audit.ConsumerLive, spec, a.consumer, p.digest, "uses the file", a.Reason))
	case liveness.Stale:
		c.Trail.Record(audit.Consumption(audit.ConsumerStale, spec, a.consumer, p.digest,
			"does not use the file: "+a.Reason, a.Reason))
	}
}

// Status is what was proven about the content of a managed file that is desired now.
func (c *Consumers) Status(spec plan.FileSpec, desired plan.Digest) (all []report.Consumer) {
	if c.Prober == nil {
		return nil
	}
	for _, consumer := range spec.Verify {
		r := report.Consumer{Kind: consumer.Kind, Address: consumer.Address, State: liveness.Waiting}
		if p := c.uses[use{spec.Field, consumer}]; p != nil && p.digest == desired {
			r.State, r.Reason, r.Since = p.State, p.Reason, p.since.UTC()
		}
		all = append(all, r)
	}
	return all
}
