// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"slices"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// maxOlder bounds what is remembered of a file that nobody was seen to use for many versions.
const maxOlder = 8

// use is who uses a file.
type use struct {
	row      plan.RowID
	consumer plan.Consumer
}

// usage is what is known of one use, since a write. It is void after the next.
type usage struct {
	plan.Proof
	digest plan.Digest
	plan.Asked
	write uint64
	since time.Time // of State
	// stop ends the asking; nil if nobody is asked.
	stop  context.CancelFunc
	again time.Time // when it is asked again unless it is live
}

// replaced is what the last write to a row put an end to.
type replaced struct {
	write  uint64
	digest plan.Digest
	certs  []pki.Cert
}

// sighting is the end of an asking about of.
type sighting struct {
	use
	of *usage
	plan.Proof
}

// replace notes that a file was written: whoever used it may use something else now, even if the
// write only healed what somebody had done to the file in the meantime.
func (l *loop) replace(w plan.Write) {
	if row, _ := l.Policy.Row(w.Row); len(row.Verify) > 0 {
		l.replaced[w.Row] = replaced{l.writes, w.Before, l.known.contents[w.Before].Certs}
	}
}

// probe has the consumers of all files that are in place asked whether they use them (step 6 of the
// flow). It waits for nobody: answers come through a channel, as the ends of jobs do.
func (l *loop) probe(ctx context.Context) {
	if l.Prober == nil || l.desired == nil {
		return
	}
	for _, e := range l.contents() {
		row, _ := l.Policy.Row(e.Row)
		if l.known.at[e.Key] != e.Digest || l.unsynced[e.Key] {
			continue
		}
		for _, c := range row.Verify {
			l.probeUse(ctx, e, use{row.ID, c})
		}
	}
}

func (l *loop) probeUse(ctx context.Context, e plan.Entry, u use) {
	p := l.uses[u]
	if p == nil || p.digest != e.Digest || p.write != l.replaced[u.row].write {
		p = l.renew(u, e)
	} else if p.stop != nil || p.State == plan.Live || l.Clock.Now().Before(p.again) {
		return
	}
	patience := time.Duration(0)
	if p.State == plan.NotYet {
		patience = l.Times.Probe
	}
	ctx, p.stop = context.WithCancel(ctx)
	asked := p.Asked
	go func() {
		a := sighting{u, p, l.Prober.Probe(ctx, u.consumer, asked, patience)}
		select {
		case l.sightings <- a:
		case <-ctx.Done():
		}
	}()
}

// renew begins anew. Whatever is still being asked about the last proof is void.
func (l *loop) renew(u use, e plan.Entry) *usage {
	last, before := l.uses[u], l.replaced[u.row]
	p := &usage{Proof: plan.Proof{State: plan.NotYet}, digest: e.Digest, Asked: plan.Asked{Certs: e.Certs}, write: before.write, since: l.Clock.Now()}
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
	l.uses[u] = p
	return p
}

// sighted takes an answer, unless it is about something that has passed.
func (l *loop) sighted(a sighting) {
	p := l.uses[a.use]
	if p != a.of {
		return
	}
	p.stop()
	p.stop, p.again = nil, l.Clock.Now().Add(l.Times.Resync)
	if a.State == plan.Live {
		p.Older = nil
	} else if why := l.waitsFor(a.row); why != "" {
		a.Proof, p.again = plan.Proof{State: plan.NotYet, Reason: why}, time.Time{}
	}
	changed := a.State != p.State
	if p.Proof = a.Proof; !changed {
		return
	}
	p.since = l.Clock.Now()
	row, _ := l.Policy.Row(a.row)
	switch a.State {
	case plan.Live:
		l.Trail.Record(audit.Consumption(audit.ConsumerLive, row, a.consumer, p.digest, "uses the file", a.Reason))
	case plan.Stale:
		l.Trail.Record(audit.Consumption(audit.ConsumerStale, row, a.consumer, p.digest, "does not use the file: "+a.Reason, a.Reason))
	}
}

// waitsFor names a unit that has yet to load the row's file: until then nobody is called stale.
func (l *loop) waitsFor(id plan.RowID) string {
	row, _ := l.Policy.Row(id)
	for _, name := range row.OnChange {
		if u := l.units[name]; u != nil && u.state != "loaded" && u.state != "not running" {
			return name + " has yet to act"
		}
	}
	return ""
}
