// SPDX-License-Identifier: Apache-2.0

package renew

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/renew/pair"
)

// Names of the files in the runtime directory.
const (
	ReportFile  = "renewal.json"
	MetricsFile = "renewal.prom"
)

// Encode is a report as it is published.
func Encode(r pair.Report) ([]byte, error) {
	text, err := json.Marshal(r)
	return append(text, '\n'), err
}

// Parse reads what Encode made.
func Parse(text []byte) (r pair.Report, err error) {
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fmt.Errorf("read the report of renewals: %v", err)
	}
	if r.APIVersion != pair.ReportVersion {
		return pair.Report{}, fmt.Errorf("read the report of renewals: version %.64q, want %s", r.APIVersion,
			pair.ReportVersion)
	}
	return r, nil
}

// Metrics renders a report. docs/usage/metrics.md lists the same names, kinds and meanings.
func Metrics(r pair.Report) []byte {
	e := &report.Exposition{}
	e.Gauge("pair_expiry_timestamp_seconds", "when a certificate of the control plane ends, on disk and as it is served")
	for _, v := range r.Pairs {
		if v.Leaf != (pair.Leaf{}) {
			e.Add(report.Seconds(v.Leaf.NotAfter), "pair", v.Name, "where", "disk")
		}
		for _, s := range v.Served {
			if s.Problem == "" {
				e.Add(report.Seconds(s.Leaf.NotAfter), "pair", v.Name, "where", s.Address)
			}
		}
	}
	e.Gauge("pair_user_start_timestamp_seconds", "when the first of a program's processes started that use the pair")
	for _, v := range r.Pairs {
		starts := v.Starts()
		for _, program := range slices.Sorted(maps.Keys(starts)) {
			e.Add(report.Seconds(starts[program]), "pair", v.Name, "program", string(program))
		}
	}
	e.Gauge("pair_renewed", "1 if somebody renews the pair unattended, 0 if nobody does")
	each := func(value func(pair.Verdict) bool) {
		for _, v := range r.Pairs {
			e.Add(report.Truth(value(v)), "pair", v.Name)
		}
	}
	each(func(v pair.Verdict) bool { return v.RenewedBy != "" })
	e.Gauge("pair_stale", "1 if somebody was seen to use another certificate than the one on disk")
	each(func(v pair.Verdict) bool { return v.StaleReason() != "" })
	e.Gauge("pair_unreadable", "1 if the files of the pair are missing, damaged or do not belong together")
	each(func(v pair.Verdict) bool { return v.State == pair.Unreadable })
	if r.Unrenewed != nil {
		e.Gauge("unrenewed_expiry_timestamp_seconds", "the first end of a certificate that nobody will renew")
		e.Add(report.Seconds(r.Unrenewed.NotAfter), "pair", r.Unrenewed.Pair)
	}
	e.Gauge("renewal_blocked", "1 if something is due and cannot be renewed at present")
	e.Add(report.Truth(r.Blocked != ""))
	if r.Lock != nil {
		e.Gauge("renewal_lock_held_timestamp_seconds", "since when a host works under the lock")
		e.Add(report.Seconds(r.Lock.Since), "host", r.Lock.Host)
	}
	e.Gauge("pairs_inspected_timestamp_seconds", "when the host was last looked at")
	e.Add(report.Seconds(r.Published))
	return e.Bytes()
}
