// SPDX-License-Identifier: Apache-2.0

// Package consumers has the servers that read managed files asked whether they use them, and remembers what they
// showed.
//
// Asking waits for nobody: answers come through a channel and belong to HandleAnswer. An answer is void if the file was
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
	// Probe asks until the consumer is seen to use the content, or cannot be told, or the timeout is over;
	// with none it asks once. When ctx ends it returns soon and the answer means nothing.
	Probe(ctx context.Context, c liveness.Consumer, want liveness.ProbeTarget, timeout time.Duration) liveness.ProbeResult
}

// Options are what Consumers need from outside.
type Options struct {
	// Prober may be nil; nobody is asked then.
	Prober Prober
	Policy plan.Policy
	Trail  audit.Recorder
	Clock  clock.Host
	// Timeout is how long a consumer may take to be seen with new bytes.
	Timeout time.Duration
	// RetryInterval is the time after which a consumer that is not live is asked again.
	RetryInterval time.Duration
}

// Consumers own what is known of each consumer of a file. One goroutine uses them.
type Consumers struct {
	Options
	states   map[consumerKey]*probeState
	answers  chan Answer
	replaced map[plan.Field]replaced
	writes   uint64
}

// consumerKey names one consumer of one file.
type consumerKey struct {
	field    plan.Field
	consumer liveness.Consumer
}

// probeState is what is known of one consumer since a write. It is void after the next.
type probeState struct {
	liveness.ProbeResult
	digest plan.Digest
	liveness.ProbeTarget
	write uint64
	since time.Time // of State
	// stop ends the probe; nil if none runs.
	stop    context.CancelFunc
	retryAt time.Time // when it is asked again unless it is live
}

// replaced is what the last write to a field put an end to.
type replaced struct {
	write  uint64
	digest plan.Digest
	certs  []pki.Cert
}

// Answer is the result of a probe that began in the state asked.
type Answer struct {
	consumerKey
	asked *probeState
	liveness.ProbeResult
}

// New knows nothing yet.
func New(o Options) *Consumers {
	return &Consumers{Options: o, states: make(map[consumerKey]*probeState), answers: make(chan Answer),
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
			c.probe(ctx, e, consumerKey{spec.Field, consumer})
		}
	}
}

func (c *Consumers) probe(ctx context.Context, e plan.Entry, key consumerKey) {
	p := c.states[key]
	if p == nil || p.digest != e.Digest || p.write != c.replaced[key.field].write {
		p = c.reset(key, e)
	} else if p.stop != nil || p.State == liveness.Live || c.Clock.Now().Before(p.retryAt) {
		return
	}
	timeout := time.Duration(0)
	if p.State == liveness.Waiting {
		timeout = c.Timeout
	}
	ctx, p.stop = context.WithCancel(ctx)
	target := p.ProbeTarget
	go func() {
		a := Answer{key, p, c.Prober.Probe(ctx, key.consumer, target, timeout)}
		select {
		case c.answers <- a:
		case <-ctx.Done():
		}
	}()
}

// reset starts again. A probe that still runs is void.
func (c *Consumers) reset(key consumerKey, e plan.Entry) *probeState {
	last, before := c.states[key], c.replaced[key.field]
	p := &probeState{ProbeResult: liveness.ProbeResult{State: liveness.Waiting}, digest: e.Digest,
		ProbeTarget: liveness.ProbeTarget{Certs: e.Certs}, write: before.write, since: c.Clock.Now()}
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
	c.states[key] = p
	return p
}

// Answers yields the results of probes, each for HandleAnswer.
func (c *Consumers) Answers() <-chan Answer { return c.answers }

// HandleAnswer records an answer, unless the file was written meanwhile. waitsFor says for which unit that has yet to
// load the file a consumer waits, or nothing: until then nobody is called stale.
func (c *Consumers) HandleAnswer(a Answer, waitsFor func(plan.FileSpec) string) {
	p := c.states[a.consumerKey]
	if p != a.asked {
		return
	}
	p.stop()
	p.stop, p.retryAt = nil, c.Clock.Now().Add(c.RetryInterval)
	spec, _ := c.Policy.File(a.field)
	if a.State == liveness.Live {
		p.Older = nil
	} else if why := waitsFor(spec); why != "" {
		a.ProbeResult, p.retryAt = liveness.ProbeResult{State: liveness.Waiting, Reason: why}, time.Time{}
	}
	changed := a.State != p.State
	p.ProbeResult = a.ProbeResult
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

// Status is what was seen about the content of a managed file that is desired now.
func (c *Consumers) Status(spec plan.FileSpec, desired plan.Digest) (all []report.Consumer) {
	if c.Prober == nil {
		return nil
	}
	for _, consumer := range spec.Verify {
		r := report.Consumer{Kind: consumer.Kind, Address: consumer.Address, State: liveness.Waiting}
		if p := c.states[consumerKey{spec.Field, consumer}]; p != nil && p.digest == desired {
			r.State, r.Reason, r.Since = p.State, p.Reason, p.since.UTC()
		}
		all = append(all, r)
	}
	return all
}
