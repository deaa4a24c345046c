// SPDX-License-Identifier: Apache-2.0

// Package mutations tells what a simulator is worth: it builds the simulator's tests with one mistake in the code that
// decides, and has their walks find it.
//
// The mistake is laid over the tree (go build -overlay), which stays as it is. A violation counts only if the same
// walk goes right without the mistake.
package mutations

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Mutation is a mistake that somebody could make: one text in place of another. It has no type of its own, so that
// tables need not repeat the names.
type Mutation = struct {
	What, File, Old, New string
}

// Table is what the walks of the package in the working directory have to find.
type Table struct {
	Root      string // of the tree, as seen from there
	Mutations []Mutation
	// Walks is how many each mutation gets, the first with the seed 1, and Time how long.
	Walks int
	Time  time.Duration
	// Right tells whether the walk with that seed goes right without a mutation.
	Right func(t *testing.T, seed uint64) bool
}

// result is how a mutation was found.
type result struct {
	what    string
	walks   uint64 // 0 if a panic does not tell
	promise string // "" if it was not found
	fact    string
	took    time.Duration
}

// Look looks whether each mutation still has its place: one that changes nothing proves nothing.
func (x Table) Look(t *testing.T) {
	for _, m := range x.Mutations {
		if _, err := x.apply(m); err != nil {
			t.Errorf("%s: %v", m.What, err)
		}
	}
}

// apply gives the file's text with the mutation in it.
func (x Table) apply(m Mutation) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(x.Root, m.File))
	if err != nil {
		return nil, err
	}
	if n := bytes.Count(text, []byte(m.Old)); n != 1 {
		return nil, fmt.Errorf("%s has the text %d times: %s", m.File, n, m.Old)
	}
	return bytes.Replace(text, []byte(m.Old), []byte(m.New), 1), nil
}

// Find walks with each mutation until a promise is broken, and prints what came of it.
func (x Table) Find(t *testing.T) {
	begin, results := time.Now(), make([]result, len(x.Mutations))
	var tried, missed int
	var mu sync.Mutex
	t.Run("all", func(t *testing.T) {
		for i, m := range x.Mutations {
			t.Run(strings.ReplaceAll(m.What, " ", "-"), func(t *testing.T) {
				t.Parallel()
				r := x.find(t, m)
				t.Logf("%s by walk %d: %s", r.promise, r.walks, r.fact)
				mu.Lock()
				defer mu.Unlock()
				tried++
				if results[i] = r; r.promise == "" {
					missed++
					t.Errorf("it was not found")
				}
			})
		}
	})
	var b strings.Builder
	for _, r := range results {
		if r.what == "" {
			continue // it was not asked for
		}
		where := "not found"
		if r.promise != "" {
			where = fmt.Sprintf("%9d", r.walks)
		}
		fmt.Fprintf(&b, "%-70s | %s | %-12s | %4.0fs | %.150s\n", r.what, where, r.promise, r.took.Seconds(), r.fact)
	}
	t.Logf("found %d of %d mutations in %v: mutation | walks | promise | time | what was seen\n%s",
		tried-missed, tried, time.Since(begin).Round(time.Second), b.String())
}

// find builds the tests with the mutation and walks.
func (x Table) find(t *testing.T, m Mutation) result {
	program := filepath.Join(t.TempDir(), "walks")
	if err := x.build(m, program); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), x.Time)
	defer cancel()
	for first := uint64(1); first <= uint64(x.Walks); {
		c := exec.CommandContext(ctx, program, "-test.run", "^TestWalks$", "-test.v", "-test.timeout", "0", "-until-found",
			"-show", "0",
			"-seed", strconv.FormatUint(first, 10), "-walks", strconv.Itoa(x.Walks-int(first)+1))
		out, err := c.CombinedOutput()
		found := violations(out)
		for _, r := range found {
			if x.Right(t, r.walks) {
				r.what, r.took = m.What, time.Since(begin)
				return r
			}
			first = r.walks + 1 // it proves nothing
		}
		switch at := bytes.Index(out, []byte("panic: ")); {
		case ctx.Err() != nil:
			return result{what: m.What, fact: "not within " + x.Time.String(), took: time.Since(begin)}
		case len(found) > 0:
		case at >= 0:
			line, _, _ := bytes.Cut(out[at:], []byte("\n"))
			return result{what: m.What, promise: "a panic", fact: string(line), took: time.Since(begin)}
		case err != nil:
			return result{what: m.What, fact: string(out), took: time.Since(begin)}
		default:
			first = uint64(x.Walks) + 1
		}
	}
	return result{what: m.What, fact: fmt.Sprintf("not in %d walks", x.Walks), took: time.Since(begin)}
}

// build makes the test program with the mutation in it.
func (x Table) build(m Mutation, program string) error {
	text, err := x.apply(m)
	if err != nil {
		return err
	}
	root, err := filepath.Abs(x.Root)
	if err != nil {
		return err
	}
	mutated, overlay := program+".go", program+".json"
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(root, m.File): mutated}})
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{mutated: text, overlay: replace} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			return err
		}
	}
	out, err := exec.Command("go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", overlay, "-o", program,
		".").CombinedOutput()
	if err != nil {
		return fmt.Errorf("building %s: %v\n%s", m.What, err, out)
	}
	return nil
}

var violation = regexp.MustCompile(`: seed (\d+): ([^:]+): (.*)`)

// violations are those that walks told, by their seeds.
func violations(out []byte) (all []result) {
	for _, found := range violation.FindAllSubmatch(out, -1) {
		seed, err := strconv.ParseUint(string(found[1]), 10, 64)
		if err == nil {
			all = append(all, result{walks: seed, promise: string(found[2]), fact: string(found[3])})
		}
	}
	slices.SortFunc(all, func(a, b result) int { return int(a.walks) - int(b.walks) })
	return all
}
