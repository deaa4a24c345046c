// SPDX-License-Identifier: Apache-2.0

// Walks connect often, and what a post-quantum key exchange costs they need not pay.
//go:debug tlsmlkem=0

package identity

import (
	"bufio"
	"flag"
	"fmt"
	"os"
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
	walks    = flag.Int("walks", 5, "how many fresh walks")
	length   = flag.Int("steps", 40, "how many steps a walk has")
	first    = flag.Uint64("seed", 1, "the seed of the first walk; 0 takes one from the clock")
	duration = flag.Duration("duration", 0, "walk for this long instead of a number of walks")
	show     = flag.Int("show", 3, "how many violations are told")
	until    = flag.Bool("until-found", false, "stop at the first violation")
	one      = flag.String("walk", "", "tell this walk, as a violation printed it, and nothing else")
)

// run walks in a bubble of its own.
func run(t *testing.T, w Walk, tell bool) (out Outcome) {
	synctest.Test(t, func(*testing.T) { out = w.Run(synctest.Wait, tell) })
	return out
}

// TestWalks runs fresh walks. All that is checked is in the walks.
func TestWalks(t *testing.T) {
	if *one != "" {
		told(t, *one)
		return
	}
	seed := *first
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // walks leave much behind, and little of it for long
	begin := time.Now()
	var next atomic.Uint64
	var stop atomic.Bool
	more := func() (uint64, bool) {
		if *until && stop.Load() {
			return 0, false
		}
		n := next.Add(1) - 1
		return seed + n, *duration > 0 && time.Since(begin) < *duration || *duration == 0 && n < uint64(*walks)
	}
	var mu sync.Mutex
	var total Counts
	found := make(map[string]int)
	t.Run("all", func(t *testing.T) {
		for range runtime.GOMAXPROCS(0) {
			t.Run("walker", func(t *testing.T) {
				t.Parallel()
				for s, ok := more(); ok; s, ok = more() {
					w := Draw(s, *length)
					out := run(t, w, false)
					mu.Lock()
					total.Add(out.Counts)
					if out.Violation != nil {
						found[out.Violation.Kind]++
					}
					tell := out.Violation != nil && total.Walks > 0 && sum(found) <= *show
					mu.Unlock()
					if out.Violation != nil {
						stop.Store(true)
						t.Errorf("seed %d: %s", s, out.Violation)
					}
					if tell {
						t.Log(minimal(t, w, *out.Violation))
					}
				}
			})
		}
	})
	t.Logf("%+v in %v; violations %v; first seed %d", total, time.Since(begin).Round(time.Second), found, seed)
}

func sum(found map[string]int) (n int) {
	for _, f := range found {
		n += f
	}
	return n
}

// minimal is the shortest walk that goes wrong in the same way, and its story.
func minimal(t *testing.T, w Walk, v Violation) string {
	w = Shrink(w, v, func(w Walk) *Violation { return run(t, w, false).Violation })
	return fmt.Sprintf("shrunk to %d steps; tell it again with -walk '%s'\n%s", len(w.Steps), w,
		strings.Join(run(t, w, true).Told, "\n"))
}

func told(t *testing.T, line string) {
	w, err := ParseWalk(line)
	if err != nil {
		t.Fatal(err)
	}
	out := run(t, w, true)
	fmt.Println(strings.Join(out.Told, "\n"))
	if out.Violation != nil {
		t.Error(out.Violation)
	}
}

// TestRememberedWalks runs what once went wrong, in testdata/walks: a walk a line, and what it showed in a line
// that begins with #.
func TestRememberedWalks(t *testing.T) {
	f, err := os.Open("testdata/walks")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	why, lines := "", bufio.NewScanner(f)
	for lines.Scan() {
		line := lines.Text()
		if comment, ok := strings.CutPrefix(line, "# "); ok {
			why = comment
			continue
		}
		w, err := ParseWalk(line)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(why, func(t *testing.T) {
			if v := run(t, w, false).Violation; v != nil {
				t.Errorf("%s\n%s", v, strings.Join(run(t, w, true).Told, "\n"))
			}
		})
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
}

// TestAWalkIsTheSameEachTime: what cannot be repeated cannot be repaired.
func TestAWalkIsTheSameEachTime(t *testing.T) {
	for seed := range uint64(2) {
		w := Draw(seed+1000, 30)
		a, b := run(t, w, true).Told, run(t, w, true).Told
		if !slices.Equal(a, b) {
			for i := range a {
				if i >= len(b) || a[i] != b[i] {
					t.Errorf("seed %d: line %d was %q, then %q", seed, i, a[i], b[min(i, len(b)-1)])
					break
				}
			}
		}
		if again, err := ParseWalk(w.String()); err != nil || again.String() != w.String() {
			t.Errorf("seed %d: written and read it is another: %v", seed, err)
		}
	}
}
