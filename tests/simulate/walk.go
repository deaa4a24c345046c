// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// Walk is one history of a host: how it is configured, and what happens to it, step by step.
type Walk struct {
	Seed    uint64
	Setting Setting
	Steps   []Step
}

// Step is one thing that happens. All that is random about it comes from its seed.
type Step struct {
	Name string
	Seed uint32
}

// Draw makes up a walk of n steps. The same seed gives the same walk, as long as the table of operations is
// the same; what is to be kept for longer is the walk itself, as String writes it.
func Draw(seed uint64, n int) Walk {
	r := rand.New(rand.NewPCG(seed, 2))
	w := Walk{Seed: seed, Setting: drawSetting(r)}
	var able []operation
	total := 0
	for _, o := range operations {
		if o.on == nil || o.on(w.Setting) {
			able = append(able, o)
			total += o.weight
		}
	}
	for range n {
		at := r.IntN(total)
		i := slices.IndexFunc(able, func(o operation) bool { at -= o.weight; return at < 0 })
		w.Steps = append(w.Steps, Step{able[i].name, r.Uint32()})
	}
	return w
}

// String is the walk on one line, as ParseWalk reads it.
func (w Walk) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%x | %s |", w.Seed, w.Setting)
	for _, s := range w.Steps {
		fmt.Fprintf(&b, " %s:%x", s.Name, s.Seed)
	}
	return b.String()
}

// ParseWalk reads a walk.
func ParseWalk(line string) (w Walk, err error) {
	parts := strings.Split(line, "|")
	if len(parts) != 3 {
		return w, fmt.Errorf("a walk is a seed, a setting and steps with | between them, not %q", line)
	}
	if w.Seed, err = strconv.ParseUint(strings.TrimSpace(parts[0]), 16, 64); err != nil {
		return w, fmt.Errorf("the seed of a walk: %v", err)
	}
	if w.Setting, err = parseSetting(parts[1]); err != nil {
		return w, err
	}
	for word := range strings.FieldsSeq(parts[2]) {
		name, digits, _ := strings.Cut(word, ":")
		seed, err := strconv.ParseUint(digits, 16, 32)
		if _, ok := operationNamed(name); !ok || err != nil {
			return w, fmt.Errorf("no such step: %s", word)
		}
		w.Steps = append(w.Steps, Step{name, uint32(seed)})
	}
	return w, nil
}

// Outcome is what a walk came to.
type Outcome struct {
	Counts    Counts
	Violation *Violation // nil: every promise was kept
	Told      []string   // what happened, a line each, if that was asked for
}

// Run walks. quiet has to return when all goroutines that the walk began are blocked: synctest.Wait, in a
// bubble. tell asks for the story. Violations that ignore accepts do not end the walk; it may be nil.
func (w Walk) Run(quiet func(), tell bool, ignore func(Violation) bool) Outcome {
	x := newEnv(w.Seed, w.Setting, quiet)
	x.logging, x.ignore = tell, ignore
	x.logf("%s", w.Setting)
	x.start()
	for _, s := range w.Steps {
		if x.violation != nil {
			break
		}
		x.step(s)
	}
	if x.violation == nil {
		x.converge()
	}
	x.kill()
	x.counts.Walks = 1
	return Outcome{Counts: x.counts, Violation: x.violation, Told: x.log}
}

func (w *env) step(s Step) {
	o, _ := operationNamed(s.Name)
	w.counts.Steps++
	w.agent.hour = nil
	w.logf("-- %s:%x", s.Name, s.Seed)
	o.do(w, rand.New(rand.NewPCG(uint64(s.Seed), w.seed)))
}

// Shrink leaves out of a walk that goes wrong whatever it goes wrong without, in the same way. run is as Run
// without the story.
func Shrink(w Walk, v Violation, run func(Walk) *Violation) Walk {
	same := func(x Walk) bool {
		got := run(x)
		return got != nil && got.Kind == v.Kind
	}
	for shorter := true; shorter; {
		shorter = false
		for n := max(1, len(w.Steps)/2); n >= 1; n /= 2 {
			for at := 0; at+n <= len(w.Steps); {
				x := w
				x.Steps = slices.Delete(slices.Clone(w.Steps), at, at+n)
				if same(x) {
					w, shorter = x, true
				} else {
					at += n
				}
			}
		}
	}
	return shrinkSetting(w, same)
}

// shrinkSetting turns switches off that make no difference.
func shrinkSetting(w Walk, same func(Walk) bool) Walk {
	names, _ := w.Setting.flags()
	for _, name := range names {
		x := w
		_, flags := x.Setting.flags()
		if *flags[name] {
			if *flags[name] = false; same(x) {
				w = x
			}
		}
	}
	for _, plain := range []func(*Setting){func(s *Setting) { s.Spread = 0 }, func(s *Setting) { s.Rest = 0 }} {
		x := w
		if plain(&x.Setting); x.Setting != w.Setting && same(x) {
			w = x
		}
	}
	return w
}
