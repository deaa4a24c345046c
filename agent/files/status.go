// SPDX-License-Identifier: Apache-2.0

package files

import (
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
)

// Status fills in their part of what is shown. d is nil if nothing is desired yet.
func (f *Files) Status(s *report.Status, d *plan.Desired) {
	s.Synced, s.Refused, s.Retained, s.Writes = f.synced.UTC(), f.refused, f.retained, f.writes
	for _, spec := range f.Policy.Files {
		s.Fields = append(s.Fields, spec.Field)
	}
	if d != nil {
		for _, e := range f.contents(*d) {
			s.Files = append(s.Files, f.fileStatus(e))
		}
		for _, h := range f.held { // as long as nothing is desired, nobody ends a hold
			s.Held = append(s.Held, f.heldStatus(h))
		}
	}
	s.Conflicts = f.contested()
}

func (f *Files) heldStatus(h plan.Held) report.Held {
	out := report.Held{Key: h.Key, Reason: h.Reason}
	if h.Cert != nil {
		out.Fingerprint, out.Subject = h.Cert.Fingerprint.String(), h.Cert.Subject
	}
	if h.Left > 0 {
		out.Until = f.Clock.Now().Add(h.Left).UTC().Round(time.Minute)
	}
	return out
}

func (f *Files) fileStatus(e plan.Entry) report.File {
	out := report.File{Key: e.Key, Digest: e.Digest, State: report.Pending, Certificates: len(e.Certs),
		Expires: pki.EarliestExpiry(e.Certs).UTC(), Warnings: e.Warnings}
	for _, c := range e.Certs {
		out.Fingerprints = append(out.Fingerprints, c.Fingerprint.String())
	}
	if spec, ok := f.Policy.File(e.Field); ok {
		if path, err := spec.PathOf(e.Name); err == nil {
			out.Path = path
		}
	}
	if f.isInPlace(e) {
		out.State = report.InPlace
	}
	return out
}
