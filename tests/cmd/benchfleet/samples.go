// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"time"
)

// samples are durations of one kind.
type samples []time.Duration

// at is the quantile q by nearest rank, in seconds; 1 is the largest. There must be a sample.
func (s samples) at(q float64) float64 {
	sorted := slices.Sorted(slices.Values(s))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))].Seconds()
}

func (s samples) String() string {
	return fmt.Sprintf("p50 %.3f  p95 %.3f  p99 %.3f  last %.3f s (n=%d)", s.at(.5), s.at(.95), s.at(.99), s.at(1), len(s))
}

// since are the times from a moment on. What came before it took no time.
func since(from time.Time, at []time.Time) samples {
	all := make(samples, len(at))
	for i, t := range at {
		all[i] = max(0, t.Sub(from))
	}
	return all
}

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
func column(rounds []samples, q float64) (all samples) {
	for _, r := range rounds {
		all = append(all, time.Duration(r.at(q)*float64(time.Second)))
	}
	return all
}
