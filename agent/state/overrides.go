// SPDX-License-Identifier: Apache-2.0

package state

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// OperatorDir is the subdirectory with the local override. It is written by commands and read by the
// agent, which never changes it.
const OperatorDir = "operator"

const (
	appliedFile = OperatorDir + "/applied.json"
	pauseFile   = OperatorDir + "/pause.json"
)

// Overrides are what the operator of this host set by hand; both parts may be absent.
type Overrides struct {
	Applied *Applied
	Pause   *Pause
}

// Applied is content for files of this host that wins over the ControllerConfig's, until the ControllerConfig asks for
// something else than it did when this was first seen.
type Applied struct {
	// ID tells one apply from another.
	ID string `json:"id"`
	// Source says where the content came from, for people.
	Source string    `json:"source"`
	At     time.Time `json:"at"`
	// Now confirms every removal that is asked for when this is carried out, and none that comes later.
	Now   bool          `json:"now,omitempty"`
	Files []AppliedFile `json:"files"`
	Lists []plan.Field  `json:"lists,omitempty"`
}

// AppliedFile is one file's content, as published.
type AppliedFile struct {
	plan.Key
	Data []byte `json:"data"`
}

// Pause stops removals and unit actions until it is over or lifted.
type Pause struct {
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
	Until  time.Time `json:"until"`
	// Boot and Uptime are those of the moment At: a clock that is set back does not prolong a pause.
	Boot   string        `json:"boot"`
	Uptime time.Duration `json:"uptime"`
}

// Over tells whether the pause has ended, by the clock or by the time that passed in its boot.
func (p Pause) Over(now time.Time, boot string, uptime time.Duration) bool {
	return !now.Before(p.Until) || boot == p.Boot && uptime-p.Uptime >= p.Until.Sub(p.At)
}

// ReadOverrides reads what the operator set. A part that cannot be read is an error and as in last; the other
// counts.
func ReadOverrides(dir Dir, last Overrides) (w Overrides, err error) {
	var broken error
	w.Applied, err = read(dir, appliedFile, last.Applied)
	w.Pause, broken = read(dir, pauseFile, last.Pause)
	return w, cmp.Or(err, broken)
}

// read gives one part, nil if there is none, or with an error last.
func read[T any](dir Dir, name string, last *T) (*T, error) {
	data, err := dir.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return last, fmt.Errorf("reading the local override: %v", err)
	}
	part := new(T)
	if json.Unmarshal(data, part) != nil {
		return last, fmt.Errorf("reading the local override: %s is not the JSON we wrote", name)
	}
	return part, nil
}

// SetOverrides makes parts of the local override durable. A part that is nil in w stays as it was.
func SetOverrides(dir Dir, w Overrides) error {
	for name, part := range map[string]any{appliedFile: w.Applied, pauseFile: w.Pause} {
		if part == (*Applied)(nil) || part == (*Pause)(nil) {
			continue
		}
		data, err := json.Marshal(part)
		if err == nil {
			err = dir.WriteFile(name, data)
		}
		if err != nil {
			return fmt.Errorf("keeping the local override: %v", err)
		}
	}
	return nil
}

// Revert takes back what was applied, and Resume the pause. done is false if there was nothing.
func Revert(dir Dir) (done bool, err error) { return forget(dir, appliedFile) }

// Resume ends a pause.
func Resume(dir Dir) (done bool, err error) { return forget(dir, pauseFile) }

func forget(dir Dir, name string) (bool, error) {
	err := dir.Remove(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("taking the local override back: %v", err)
	}
	return true, nil
}
