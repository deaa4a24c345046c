// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"errors"
	"fmt"
	"math/rand/v2"
)

// faults are what goes wrong at the agent's contacts with the outside.
type faults struct {
	rng  *rand.Rand
	rate map[contact]float64
	// late has an operation fail after it was done, as often as before.
	late bool

	dead     bool
	killIn   int // contacts; 0: never
	killLate bool
	killDone bool // with the next commit, before anybody hears of it

	scribbleIn int
	scribble   func()
}

// contact is a kind of contact with the outside.
type contact string

// The contacts. Each of them can fail, and each can be the last.
const (
	observing        contact = "look at the files"
	staging          contact = "stage a file"
	renaming         contact = "rename a file"
	removing         contact = "remove a file"
	syncing          contact = "sync a directory"
	saving           contact = "write to /var/lib"
	asking           contact = "ask systemd"
	acting           contact = "act on a unit"
	readingOverrides contact = "read the local override"
)

var failing = []contact{observing, staging, renaming, removing, syncing, saving, asking, acting, readingOverrides}

var errKilled = errors.New("killed")

// meet is asked at each contact. before is set if it has no effect, and after if only its answer is lost.
func (w *env) meet(c contact) (before, after error) {
	f := &w.faults
	if f.dead {
		return errKilled, errKilled
	}
	if f.killIn > 0 {
		if f.killIn--; f.killIn == 0 {
			f.dead = true
			w.counts.Kills++
			w.logf("  killed when it was about to %s (effect: %v)", c, f.killLate)
			if f.killLate {
				return nil, errKilled
			}
			return errKilled, errKilled
		}
	}
	if f.scribbleIn > 0 {
		if f.scribbleIn--; f.scribbleIn == 0 {
			f.scribble()
		}
	}
	rate := f.rate[c]
	if rate == 0 || f.rng.Float64() >= rate {
		return nil, nil
	}
	err := fmt.Errorf("cannot %s", c)
	if f.late && f.rng.IntN(2) == 0 {
		return nil, err
	}
	return err, err
}

// killedWith ends the agent with a commit that was carried out, if it shall end there.
func (w *env) killedWith(err error) error {
	if f := &w.faults; f.killDone && err == nil {
		f.killDone, f.dead = false, true
		w.counts.Kills++
		w.logf("  killed right after the commit")
		return errKilled
	}
	return err
}

// lost is the error of a bus that went away.
type lost struct{}

// Error implements error.
func (lost) Error() string { return "the bus was lost" }

// Unreachable tells the agent that the unit did nothing wrong.
func (lost) Unreachable() bool { return true }
