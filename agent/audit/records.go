// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/liveness"
	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/printable"
	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
)

// Recorder takes audit records.
type Recorder interface{ Record(Record) }

// about is a record that names the version of the ControllerConfig.
func about(o plan.ControllerConfig, kind Kind, message string) Record {
	return Record{Kind: kind, Message: message}.
		With(ControllerConfigUID, printable.Text(o.UID)).With(ResourceVersion, printable.Text(o.ResourceVersion))
}

// Exception is the record of what is refused or retained.
func Exception(o plan.ControllerConfig, kind Kind, r plan.Refusal) Record {
	name, reason := printable.Text(r.Key.String()), printable.Text(r.Reason)
	return about(o, kind, fmt.Sprintf("%s %s: %s", kind.Name, name, reason)).
		With(SourceField, string(r.Field)).With(Entry, printable.Text(r.Name)).With(Reason, reason)
}

// Holding is the record of a removal that waits.
func Holding(o plan.ControllerConfig, h plan.Held) Record {
	name := printable.Text(h.Key.String())
	r := about(o, Held, fmt.Sprintf("holding %s: %s", name, h.Reason)).
		With(SourceField, string(h.Field)).With(Entry, printable.Text(h.Name)).With(Reason, h.Reason)
	if h.Cert != nil {
		r = r.With(CertsRemoved, certLines([]pki.Cert{*h.Cert}))
	}
	return r
}

// Intended says what is about to happen: one record for the whole commit, a line a file.
func Intended(o plan.ControllerConfig, p plan.Plan) Record {
	var files strings.Builder
	for _, w := range p.Writes {
		fmt.Fprintf(&files, "write %s %s -> %s\n", w.Path, cmp.Or(w.Before.String(), "none"), w.Digest)
	}
	for _, r := range p.Removes {
		fmt.Fprintf(&files, "remove %s %s\n", r.Path, r.Digest)
	}
	message := fmt.Sprintf("about to write %s and remove %d", printable.Count(len(p.Writes), "file"), len(p.Removes))
	return about(o, Intent, message).With(Files, strings.TrimSuffix(files.String(), "\n"))
}

// Outcome says what came of a commit: why it stopped, or a record for each file that was published or removed.
func Outcome(o plan.ControllerConfig, p plan.Plan, err error) (records []Record) {
	if err != nil {
		return []Record{about(o, CommitFailed, "a commit stopped").With(Reason, err.Error())}
	}
	for _, w := range p.Writes {
		records = append(records, wrote(o, w))
	}
	for _, r := range p.Removes {
		if r.Digest == (plan.Digest{}) {
			continue // it was gone before
		}
		records = append(records, about(o, Removed, "removed "+r.Path).
			With(SourceField, string(r.Field)).With(Entry, r.Name).With(Path, r.Path).With(Before, r.Digest.String()))
	}
	return records
}

// wrote is the record of one file that was published.
func wrote(o plan.ControllerConfig, w plan.Write) Record {
	message := fmt.Sprintf("wrote %s: %s, %s added, %d removed", w.Path, w.Cause,
		printable.Count(len(w.Added), "certificate"), len(w.Removed))
	return about(o, Written, message).
		With(SourceField, string(w.Field)).With(Entry, w.Name).With(Path, w.Path).With(Cause, string(w.Cause)).
		With(Before, w.Before.String()).With(After, w.Digest.String()).
		With(CertsAdded, certLines(w.Added)).With(CertsRemoved, certLines(w.Removed))
}

// Contested is the record of a file that somebody else keeps changing: it was repaired so often within a while, and
// from now on there is one repair in each pause.
func Contested(o plan.ControllerConfig, w plan.Write, repairs int, within, pause time.Duration) Record {
	message := fmt.Sprintf("somebody else keeps changing %s: repaired %d times in %v, and from now on once in %v",
		w.Path, repairs, within, pause)
	return about(o, Conflict, message).With(SourceField, string(w.Field)).With(Entry, w.Name).With(Path, w.Path).
		With(Before, w.Before.String()).With(After, w.Digest.String())
}

// Action is a record about a unit's action; affected are the other units on which systemd acts along with it.
func Action(kind Kind, u unitplan.Unit, affected []string, message string) Record {
	return Record{Kind: kind, Message: message}.
		With(Unit, u.Name).With(Verb, string(u.Verb)).With(AlsoAffects, strings.Join(affected, "\n"))
}

// Consumption is the record of whether a consumer uses a managed file, which has the digest after.
func Consumption(kind Kind, spec plan.FileSpec, c liveness.Consumer, after plan.Digest, what, reason string) Record {
	return Record{Kind: kind, Message: fmt.Sprintf("%s: %s at %s %s", spec.Path, c.Kind, c.Address, what)}.
		With(SourceField, string(spec.Field)).With(Path, spec.Path).With(After, after.String()).
		With(Consumer, fmt.Sprintf("%s %s", c.Kind, c.Address)).With(Reason, reason)
}

// certLines lists certificates, one a line: fingerprint and subject.
func certLines(certs []pki.Cert) string {
	lines := make([]string, len(certs))
	for i, c := range certs {
		lines[i] = c.Fingerprint.String() + " " + c.Subject
	}
	return strings.Join(lines, "\n")
}
