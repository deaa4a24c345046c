// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"time"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/figures"
)

// busiest is the largest number of these that lie within one second.
func busiest(at []time.Time) (most int) {
	sorted := slices.SortedFunc(slices.Values(at), time.Time.Compare)
	first := 0
	for i, t := range sorted {
		for t.Sub(sorted[first]) >= time.Second {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// column gives the quantile q of each.
func column(rounds []figures.Samples, q float64) (all figures.Samples) {
	for _, r := range rounds {
		all = append(all, r.At(q))
	}
	return all
}
