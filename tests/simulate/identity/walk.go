// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Setting is how the host and its clusters are configured during a walk.
type Setting struct {
	Life              time.Duration
	Pins, Hints, Keep bool
}

// String is the setting in one word a value, as parseSetting reads it.
func (s Setting) String() string {
	return fmt.Sprintf("life=%v pins=%v hints=%v keep=%v", s.Life, s.Pins, s.Hints, s.Keep)
}

func parseSetting(text string) (s Setting, err error) {
	for word := range strings.FieldsSeq(text) {
		name, value, _ := strings.Cut(word, "=")
		flag := map[string]*bool{"pins": &s.Pins, "hints": &s.Hints, "keep": &s.Keep}[name]
		switch {
		case name == "life":
			s.Life, err = time.ParseDuration(value)
		case flag != nil:
			*flag, err = strconv.ParseBool(value)
		default:
			err = fmt.Errorf("no such setting: %s", name)
		}
		if err != nil {
			return s, err
		}
	}
	return s, nil
}

// Walk is one history.
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

// Draw makes up a walk of n steps. What is to be kept is the walk itself, as String writes it: the table of
// operations may change.
func Draw(seed uint64, n int) Walk {
	r := rand.New(rand.NewPCG(seed, 3))
	w := Walk{Seed: seed, Setting: Setting{Life: pick(r, time.Hour, time.Hour, 2*time.Hour, 6*time.Hour),
		Pins: r.IntN(3) == 0, Hints: r.IntN(2) == 0, Keep: r.IntN(4) == 0}}
	total := 0
	for _, o := range operations {
		total += o.weight
	}
	for range n {
		at := r.IntN(total)
		i := slices.IndexFunc(operations, func(o operation) bool { at -= o.weight; return at < 0 })
		w.Steps = append(w.Steps, Step{operations[i].name, r.Uint32()})
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
		if err != nil || operationNamed(name) == nil {
			return w, fmt.Errorf("no such step: %s", word)
		}
		w.Steps = append(w.Steps, Step{name, uint32(seed)})
	}
	return w, nil
}

func operationNamed(name string) *operation {
	i := slices.IndexFunc(operations, func(o operation) bool { return o.name == name })
	if i < 0 {
		return nil
	}
	return &operations[i]
}

// Outcome is what a walk came to.
type Outcome struct {
	Counts    Counts
	Violation *Violation // nil: every promise was kept
	Told      []string   // what happened, a line each, if that was asked for
}

// Run walks. quiet has to return when all goroutines that the walk began are blocked: synctest.Wait, in a
// bubble. tell asks for the story.
func (w Walk) Run(quiet func(), tell bool) Outcome {
	x := newEnv(w.Seed, w.Setting, quiet)
	defer x.end()
	x.telling = tell
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
	x.counts.Walks, x.counts.Lives = 1, x.lives
	return Outcome{Counts: x.counts, Violation: x.violation, Told: x.told}
}

func (w *env) step(s Step) {
	o, r := operationNamed(s.Name), rand.New(rand.NewPCG(uint64(s.Seed), w.seed))
	w.counts.Steps++
	w.logf("-- %s:%x", s.Name, s.Seed)
	w.event()
	if o.takes != nil {
		o.takes(w, r)
	} else {
		w.mu.Lock()
		o.do(w, r)
		w.mu.Unlock()
	}
	w.event()
	w.advance(time.Duration(1+r.IntN(3000)) * time.Millisecond)
}

// Shrink leaves out of a walk that goes wrong whatever it goes wrong without, in the same way.
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
	for _, plain := range []func(*Setting){
		func(s *Setting) { s.Pins = false }, func(s *Setting) { s.Hints = false }, func(s *Setting) { s.Keep = false }} {
		x := w
		if plain(&x.Setting); x.Setting != w.Setting && same(x) {
			w = x
		}
	}
	return w
}
