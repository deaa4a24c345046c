// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"slices"
	"strings"

	"github.com/node-cert-agent/node-cert-agent/agent/printable"
)

// Reason is the word of a condition.
type Reason = string

// The reasons for which a source cannot be used.
const (
	SourceMissing    Reason = "SourceMissing"
	SourceUnreadable Reason = "SourceUnreadable"
	SourceEmpty      Reason = "SourceEmpty"
	SourceRefused    Reason = "SourceRefused"
)

// Source is what one source says now.
type Source struct {
	// Name is how people call the source.
	Name string
	Data []byte
	// Version changes whenever the object does that Data is from; empty if the NodeBundle itself has it.
	Version string
	// Reason is set if there is no Data, and Problem then says why: a sentence without content.
	Reason  Reason
	Problem string
}

// problem is why a source cannot be used.
type problem struct {
	source, why string
	reason      Reason
}

func (p problem) String() string { return p.source + ": " + p.why }

// read judges the sources as a node would judge a bundle.
func (m *merging) read() {
	for _, s := range m.in.Sources {
		p := problem{source: s.Name, reason: s.Reason, why: s.Problem}
		if s.Reason == "" {
			p = m.take(s)
		}
		if p.reason != "" {
			m.problems = append(m.problems, p)
		}
	}
	slices.SortFunc(m.problems, func(a, b problem) int { return strings.Compare(a.String(), b.String()) })
	slices.Sort(m.warnings)
}

// take adds the certificates of a source to those that are wanted.
func (m *merging) take(s Source) problem {
	if len(s.Data) == 0 {
		return problem{source: s.Name, reason: SourceEmpty, why: "is empty"}
	}
	e, err := m.spec.Entry(m.in.Key.Name, s.Data, m.in.Now)
	if err != nil {
		return problem{source: s.Name, reason: SourceRefused, why: printable.Text(err.Error())}
	}
	for _, c := range e.Certs {
		m.wanted[c.Fingerprint] = c
	}
	for _, w := range e.Warnings {
		m.warnings = append(m.warnings, s.Name+": "+w)
	}
	return problem{}
}
