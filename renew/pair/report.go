// SPDX-License-Identifier: Apache-2.0

package pair

import (
	"cmp"
	"slices"
	"time"
)

// ReportVersion stands in every Report.
const ReportVersion = "renewal.node-cert-agent.io/v1alpha1"

// Date is when something ends, and what.
type Date struct {
	Pair     string    `json:"pair"`
	NotAfter time.Time `json:"notAfter"`
}

// Lock is who works under the lock of the renewals, and since when by its own clock.
type Lock struct {
	Host  string    `json:"host"`
	Since time.Time `json:"since"`
}

// Report is what a host says of its pairs.
type Report struct {
	APIVersion string    `json:"apiVersion"`
	Published  time.Time `json:"published"`
	Mode       string    `json:"mode"`
	Pairs      []Verdict `json:"pairs"`
	Notes      []string  `json:"notes,omitempty"`
	// Blocked is why what is due is not renewed at present; one line.
	Blocked string `json:"blocked,omitempty"`
	// Lock is nil if nobody has it, or this host had no reason to look.
	Lock *Lock `json:"lock,omitempty"`
	// Earliest is the pair that ends first; nil without pairs that can be read.
	Earliest *Date `json:"earliest,omitempty"`
	// Unrenewed is the first end that comes because nobody renews the pair; nil if all are renewed.
	Unrenewed *Date `json:"unrenewed,omitempty"`
}

// NewReport makes a report of verdicts.
func NewReport(mode string, verdicts []Verdict, notes []string, now time.Time) Report {
	r := Report{APIVersion: ReportVersion, Published: now.UTC().Truncate(time.Second), Mode: mode, Pairs: verdicts,
		Notes: notes}
	r.Earliest = first(verdicts, func(Verdict) bool { return true })
	r.Unrenewed = first(verdicts, func(v Verdict) bool { return v.RenewedBy == "" })
	return r
}

// first is the earliest end of those that count.
func first(verdicts []Verdict, counts func(Verdict) bool) *Date {
	read := slices.DeleteFunc(slices.Clone(verdicts), func(v Verdict) bool { return v.Leaf == (Leaf{}) || !counts(v) })
	if len(read) == 0 {
		return nil
	}
	v := slices.MinFunc(read, func(a, b Verdict) int {
		return cmp.Or(a.Leaf.NotAfter.Compare(b.Leaf.NotAfter), cmp.Compare(a.Name, b.Name))
	})
	return &Date{v.Name, v.Leaf.NotAfter}
}
