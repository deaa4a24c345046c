// SPDX-License-Identifier: Apache-2.0

package figures

import (
	"fmt"
	"slices"
	"time"
)

// Samples are durations of one kind.
type Samples []time.Duration

// Since are the times from a moment on. What came before it took no time.
func Since(from time.Time, at []time.Time) Samples {
	all := make(Samples, len(at))
	for i, t := range at {
		all[i] = max(0, t.Sub(from))
	}
	return all
}

// At is the quantile q by nearest rank; 1 is the largest. There must be a sample.
func (s Samples) At(q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(s))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// Seconds is At in seconds.
func (s Samples) Seconds(q float64) float64 { return s.At(q).Seconds() }

// Milliseconds is At in milliseconds.
func (s Samples) Milliseconds(q float64) float64 { return Milliseconds(s.At(q)) }

// Milliseconds is a duration in milliseconds, with fractions.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// String has quantiles in milliseconds, or in seconds where the largest is one or more.
func (s Samples) String() string {
	if s.At(1) >= time.Second {
		return fmt.Sprintf("p50 %.3f  p95 %.3f  p99 %.3f  last %.3f s (n=%d)", s.Seconds(.5), s.Seconds(.95), s.Seconds(.99),
			s.Seconds(1), len(s))
	}
	return fmt.Sprintf("p50 %.2f  p95 %.2f  p99 %.2f  last %.2f ms (n=%d)", s.Milliseconds(.5), s.Milliseconds(.95),
		s.Milliseconds(.99), s.Milliseconds(1), len(s))
}
