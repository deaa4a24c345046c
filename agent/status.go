// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
)

// status is everything that the reporter shows.
func (l *loop) status() report.Status {
	s := report.Status{Version: l.Version, Node: l.Node, State: l.reading.State, Reason: l.reading.Reason, Since: l.since.UTC(),
		Identity: l.reading.Identity, Synced: l.synced.UTC(), Trouble: l.trouble, Refused: l.refused, Kept: l.kept, Writes: l.writes, Actions: l.actions}
	if l.desired != nil {
		s.Object = l.desired.Object
		for _, e := range l.desired.Entries {
			s.Files = append(s.Files, l.fileStatus(e))
		}
	}
	for _, u := range l.Policy.Units {
		if t := l.units[u.Name]; t != nil {
			s.Units = append(s.Units, report.Unit{Name: u.Name, Verb: u.Verb, State: t.state, Reason: t.reason, Paid: t.paid.UTC()})
		}
	}
	return s
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
	}
	if l.known.at[e.Key] == e.Digest && !l.unsynced[e.Key] {
		f.State = "in place"
	}
	return f
}
