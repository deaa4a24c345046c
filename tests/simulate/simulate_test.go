// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"flag"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var (
	walks    = flag.Int("walks", 30, "how many fresh walks")
	length   = flag.Int("steps", 80, "how many steps a walk has")
	first    = flag.Uint64("seed", 1, "the seed of the first walk; 0 takes one from the clock")
	duration = flag.Duration("duration", 0, "walk for this long instead of a number of walks")
	show     = flag.Int("show", 3, "how many violations are told")
	excuse   = flag.String("excuse", "", "kinds of violations to ignore, separated by commas")
	all      = flag.Bool("all", false, "do not ignore defects that are known")
	without  = flag.String("without", "", "steps to leave out, separated by commas")
	until    = flag.Bool("until-found", false, "stop at the first violation")
	one      = flag.String("walk", "", "tell this walk, as a violation printed it, and nothing else")
)

// run walks within a bubble.
func run(w Walk, tell bool) Outcome { return w.Run(synctest.Wait, tell, ignored) }

// ignored are the violations that nobody wants to hear of now.
func ignored(v Violation) bool {
	return !*all && isKnown(v) || *excuse != "" && slices.Contains(strings.Split(*excuse, ","), v.Kind)
}

// TestWalks runs fresh walks. All that is checked is in the walks.
func TestWalks(t *testing.T) {
	if *one != "" {
		tell(t, *one)
		return
	}
	seed := *first
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // walks leave much behind, and little of it for long
	begin := time.Now()
	var next atomic.Uint64
	var found atomic.Bool
	var mu sync.Mutex
	var total Counts
	kinds, told := make(map[string]int), 0
	more := func() (uint64, bool) {
		n := next.Add(1) - 1
		if *until && found.Load() {
			return 0, false
		}
		if *duration > 0 {
			return seed + n, time.Since(begin) < *duration
		}
		return seed + n, n < uint64(*walks)
	}
	t.Run("all", func(t *testing.T) {
		for range runtime.GOMAXPROCS(0) {
			t.Run("walker", func(t *testing.T) {
				t.Parallel()
				for s, ok := more(); ok; s, ok = more() {
					w := Draw(s, *length)
					w.Steps = slices.DeleteFunc(w.Steps, func(s Step) bool {
						return slices.Contains(strings.Split(*without, ","), s.Name)
					})
					out := Outcome{}
					synctest.Test(t, func(*testing.T) { out = run(w, false) })
					mu.Lock()
					total.Add(out.Counts)
					tellThis := false
					if v := out.Violation; v != nil {
						kinds[v.Kind]++
						found.Store(true)
						told++
						tellThis = told <= *show
						t.Errorf("seed %d: %s", s, v)
					}
					mu.Unlock()
					if tellThis {
						story := minimal(t, w, *out.Violation)
						mu.Lock()
						t.Log(story)
						mu.Unlock()
					}
				}
			})
		}
	})
	took := time.Since(begin)
	t.Logf("%+v in %v, %.1f walks/s; violations %v; first seed %d", total, took.Round(time.Second),
		float64(total.Walks)/took.Seconds(), kinds, seed)
}

// minimal is the shortest walk that goes wrong in the same way, and its story.
func minimal(t *testing.T, w Walk, v Violation) (story string) {
	synctest.Test(t, func(*testing.T) {
		w = Shrink(w, v, func(w Walk) *Violation { return run(w, false).Violation })
		out := run(w, true)
		story = fmt.Sprintf("shrunk to %d steps; tell it again with -walk '%s'\n", len(w.Steps), w)
		for _, line := range out.Told {
			story += line + "\n"
		}
	})
	return story
}

func tell(t *testing.T, line string) {
	w, err := ParseWalk(line)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(*testing.T) {
		out := run(w, true)
		for _, line := range out.Told {
			fmt.Println(line)
		}
		if out.Violation != nil {
			t.Error(out.Violation)
		}
	})
}

// TestAWalkIsTheSameEachTime: what cannot be repeated cannot be repaired.
func TestAWalkIsTheSameEachTime(t *testing.T) {
	for seed := range uint64(6) {
		w := Draw(seed+1000, 60)
		var stories [2][]string
		for i := range stories {
			synctest.Test(t, func(*testing.T) { stories[i] = run(w, true).Told })
		}
		if !slices.Equal(stories[0], stories[1]) {
			for i, line := range stories[0] {
				if i >= len(stories[1]) || stories[1][i] != line {
					t.Errorf("seed %d: line %d was %q", seed, i, line)
					break
				}
			}
		}
		again, err := ParseWalk(w.String())
		if err != nil || again.String() != w.String() {
			t.Errorf("seed %d: written and read it is another: %v", seed, err)
		}
	}
}

// TestAStampHasBothReadings: a clock that is set moves the wall time and not the monotonic one.
func TestAStampHasBothReadings(t *testing.T) {
	a, b := stamp(epoch, time.Hour), stamp(epoch.Add(-24*time.Hour), time.Hour+time.Second)
	if got := b.Sub(a); got != time.Second {
		t.Errorf("the monotonic readings differ by %v, want 1s", got)
	}
	if !a.Round(0).Equal(epoch) || !b.Round(0).Equal(epoch.Add(-24*time.Hour)) {
		t.Errorf("the wall times are %v and %v", a.Round(0), b.Round(0))
	}
}
