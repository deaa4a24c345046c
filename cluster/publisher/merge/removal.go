// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/printable"
	"github.com/node-cert-agent/node-cert-agent/cluster/api/v1alpha1"
)

// The reasons for which a certificate stays that no source has.
const (
	SourcesNotReady Reason = "SourcesNotReady"
	ReplacedAtOnce  Reason = "ReplacedAtOnce"
	Held            Reason = "Held"
	RemovalBlocked  Reason = "RemovalBlocked"
)

// kept is a certificate that stays although no source has it.
type kept struct {
	fingerprint pki.Fingerprint
	since       time.Time
	reason      Reason
	why         string
}

// keep decides whether a certificate that no source has stays, and notes why.
func (m *merging) keep(fp pki.Fingerprint) bool {
	k := kept{fingerprint: fp, since: m.in.Now}
	if old := m.known[fp.String()]; old.KeptSince != nil {
		k.since = old.KeptSince.Time
	}
	k.reason, k.why = m.blocked(k)
	if k.reason != "" {
		m.kept = append(m.kept, k)
	}
	return k.reason != ""
}

// blocked is why a certificate may not go, or nothing.
func (m *merging) blocked(k kept) (Reason, string) {
	switch r := m.in.Removal; {
	case len(m.problems) > 0:
		return SourcesNotReady, "a source cannot be used, and may have it: " + m.problems[0].String()
	case len(m.new) == 0 && m.in.Force.allows(k):
		m.bypass(k, "RemovalForced", fmt.Sprintf("%s forces it: %s", printable.Text(m.in.Force.By),
			printable.Text(m.in.Force.Why)))
		return "", ""
	case m.replaced[k.fingerprint] && !slices.Contains(m.in.Replaced, k.fingerprint):
		return ReplacedAtOnce, "the sources replaced every certificate at once, which may be a mistake"
	case r.Policy == v1alpha1.Immediate:
		return "", ""
	case r.Policy == v1alpha1.Hold:
		return m.held(k, r.Hold.Or(-1))
	default:
		return m.unconverged(k, r.Deadline.Or(-1))
	}
}

func (m *merging) held(k kept, hold time.Duration) (Reason, string) {
	until := k.since.Add(hold)
	switch {
	case hold < 0:
		return Held, "spec.removal.hold is no duration"
	case m.in.Now.Before(until):
		m.next(until)
		return Held, "held until " + until.UTC().Format(time.RFC3339)
	}
	return "", ""
}

// unconverged asks the nodes. What is new has to reach them first: one write grows or shrinks.
func (m *merging) unconverged(k kept, deadline time.Duration) (Reason, string) {
	if deadline >= 0 {
		if end := k.since.Add(deadline); m.in.Now.Before(end) {
			m.next(end)
		} else {
			m.bypass(k, "DeadlinePassed", "the deadline has passed, and no source has it since "+
				k.since.UTC().Format(time.RFC3339))
			return "", ""
		}
	}
	if len(m.new) > 0 {
		return RemovalBlocked, "nodes get the new certificates first"
	}
	if m.in.MayGo == nil {
		return RemovalBlocked, "it is not known which nodes have what remains"
	}
	left := slices.SortedFunc(maps.Keys(m.wanted), func(a, b pki.Fingerprint) int { return bytes.Compare(a[:], b[:]) })
	may, why := m.in.MayGo(left)
	if may {
		return "", ""
	}
	return RemovalBlocked, printable.Text(why)
}

// bypass notes that a certificate goes although its policy would keep it, and why.
func (m *merging) bypass(k kept, reason, why string) {
	note := fmt.Sprintf("%s goes although not every node is known to have what remains: %s", name(k.fingerprint), why)
	m.event(true, reason, note)
	m.result.Bypassed = append(m.result.Bypassed, note)
}

// replacedAtOnce are the certificates that went from the sources together with all others. They count as such until
// one of them is back, since by then the sources and what is published have something in common again.
func (m *merging) replacedAtOnce() map[pki.Fingerprint]bool {
	all, before, back, shared := make(map[pki.Fingerprint]bool), make(map[pki.Fingerprint]bool), false, false
	for _, c := range m.published {
		_, wanted := m.wanted[c.Fingerprint]
		all[c.Fingerprint] = true
		shared = shared || wanted
		if m.known[c.Fingerprint.String()].Replaced {
			before[c.Fingerprint] = true
			back = back || wanted
		}
	}
	switch {
	case len(m.problems) == 0 && !shared && len(all) > 0:
		if len(all) > len(before) {
			m.event(true, ReplacedAtOnce, fmt.Sprintf("the sources replaced all of %d certificates at once: the new ones are "+
				"published, and the old ones stay until one is back or the annotation %s names them", len(all), Annotation))
		}
		return all
	case back:
		return nil
	}
	return before
}

// Annotation of a NodeBundle lists the certificates, as sha256:FINGERPRINT and with commas between, that may go
// although the sources replaced every certificate at once.
const Annotation = "node-cert-agent.io/replaced"

// Named are the certificates that the annotation lists. What cannot be read names nothing.
func Named(annotation string) (all []pki.Fingerprint) {
	for item := range strings.SplitSeq(annotation, ",") {
		if digits, ok := strings.CutPrefix(strings.TrimSpace(item), "sha256:"); ok {
			all = append(all, fingerprints(digits)...)
		}
	}
	return all
}

// fingerprints is the one that digits are, or none.
func fingerprints(digits string) []pki.Fingerprint {
	raw, err := hex.DecodeString(digits)
	if err != nil || len(raw) != len(pki.Fingerprint{}) {
		return nil
	}
	return []pki.Fingerprint{pki.Fingerprint(raw)}
}
