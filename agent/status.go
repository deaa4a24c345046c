// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"slices"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
)

// status is everything that the reporter shows.
func (l *loop) status() report.Status {
	s := l.desired.Status()
	s.Version, s.Node, s.Trouble = l.Version, l.Node, l.schedule.trouble
	s.Synced, s.Refused, s.Kept, s.Writes = l.synced.UTC(), l.refused, l.kept, l.writes
	if l.desired.Current() != nil {
		for _, e := range l.contents() {
			s.Files = append(s.Files, l.fileStatus(e))
		}
		for _, h := range l.held { // as long as nothing is desired, nobody ends a hold
			s.Held = append(s.Held, l.heldStatus(h))
		}
	}
	s.Conflicts = l.conflicts()
	s.Units, s.Actions = l.actions.Status()
	return s
}

// contents are what the files shall have now: what is held included, as far as that is known, and under the
// digest of the file.
func (l *loop) contents() []plan.Entry {
	planned := make(map[plan.Key]plan.Entry, len(l.entries))
	for _, e := range l.entries {
		planned[e.Key] = e
	}
	out := slices.Clone(l.desired.Current().Entries)
	for i, e := range out {
		if p, ok := planned[e.Key]; ok {
			out[i] = p
			out[i].Digest = p.OnDisk()
		}
	}
	return out
}

// inPlace are those of them that the files have, durably.
func (l *loop) inPlace() []plan.Entry {
	return slices.DeleteFunc(l.contents(), func(e plan.Entry) bool { return !l.isInPlace(e) })
}

func (l *loop) isInPlace(e plan.Entry) bool {
	return l.known.at[e.Key] == e.Digest && !l.unsynced[e.Key]
}

func (l *loop) heldStatus(h plan.Held) report.Held {
	out := report.Held{Key: h.Key, Reason: h.Reason}
	if h.Cert != nil {
		out.Fingerprint, out.Subject = h.Cert.Fingerprint.String(), plan.Printable(h.Cert.Subject)
	}
	if h.Left > 0 {
		out.Until = l.Clock.Now().Add(h.Left).UTC().Round(time.Minute)
	}
	return out
}

func (l *loop) fileStatus(e plan.Entry) report.File {
	f := report.File{Key: e.Key, Digest: e.Digest, State: "pending", Certificates: len(e.Certs),
		Expires: pki.EarliestExpiry(e.Certs).UTC(), Warnings: e.Warnings}
	for _, c := range e.Certs {
		f.Fingerprints = append(f.Fingerprints, c.Fingerprint.String())
	}
	if row, ok := l.Policy.Row(e.Row); ok {
		if path, err := row.Path(e.Name); err == nil {
			f.Path = path
		}
		f.Consumers = l.consumers.Status(row, e.Digest)
	}
	if l.isInPlace(e) {
		f.State = "in place"
	}
	return f
}
