// SPDX-License-Identifier: Apache-2.0

package figures_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/figures"
)

func TestQuantilesAreByNearestRank(t *testing.T) {
	var s figures.Samples
	for i := range 100 {
		s = append(s, time.Duration(100-i)*time.Second)
	}
	for q, want := range map[float64]time.Duration{0: 1, .5: 51, .95: 96, .99: 100, 1: 100} {
		if got := s.At(q); got != want*time.Second {
			t.Errorf("the quantile %v of 1 to 100 seconds is %v, want %v", q, got, want*time.Second)
		}
	}
	if s[0] != 100*time.Second {
		t.Error("the samples were sorted in place")
	}
	if got := s[:1].Milliseconds(.5); got != 100000 {
		t.Errorf("the median of one sample is %v ms", got)
	}
	for want, s := range map[string]figures.Samples{
		"p50 0.50  p95 0.50  p99 0.50  last 0.50 ms (n=1)":    {500 * time.Microsecond},
		"p50 1.000  p95 1.000  p99 1.000  last 1.000 s (n=2)": {time.Second, time.Millisecond},
	} {
		if got := s.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestWhatComesBeforeTheAnswerTakesNoTime(t *testing.T) {
	now := time.Now()
	got := figures.Since(now, []time.Time{now.Add(-time.Second), now.Add(time.Second)})
	if !slices.Equal(got, figures.Samples{0, time.Second}) {
		t.Errorf("it took %v", got)
	}
}

func TestAnExceededBudgetIsSaid(t *testing.T) {
	var tb figures.Table
	tb.Head("%d nodes", 5)
	tb.Judge("equal", 2, 2, "s")
	if tb.Over {
		t.Error("a figure that equals its budget is over it")
	}
	tb.Judge("above", 2.5, 2, "s")
	tb.Compare("more", map[string]figures.Samples{"baseline": {time.Second}, "agent": {2 * time.Second}},
		map[string]float64{"p95": 3})
	var out strings.Builder
	if err := tb.Print(&out); err != nil || !tb.Over {
		t.Errorf("over: %v, %v", tb.Over, err)
	}
	all := strings.Join(strings.Fields(out.String()), " ")
	for _, words := range []string{"5 nodes", "equal 2 s 2 s OK", "above 2.50 s 2 s OVER", "agent / baseline, p50 2 x agent",
		"agent / baseline, p95 2 x 3 x OK"} {
		if !strings.Contains(all, words) {
			t.Errorf("the table does not say %q:\n%s", words, out.String())
		}
	}
}
