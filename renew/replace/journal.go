// SPDX-License-Identifier: Apache-2.0

package replace

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// journalFile is in the state directory.
const journalFile = "replace.json"

// journal says, durably, which pair is being replaced, and where the old ones were copied to.
type journal struct {
	Version int      `json:"version"`
	Waiting *waiting `json:"waiting,omitempty"`
	// Copies are those of each pair, the newest first.
	Copies map[string][]generation `json:"copies,omitempty"`
}

type phase string

const (
	phaseStaged    phase = "staged"    // the new pair is being put in place
	phaseWritten   phase = "written"   // it stands, and is not proven
	phaseRestoring phase = "restoring" // the old pair is being put back
)

// waiting is a pair that is neither old for good nor new for good.
type waiting struct {
	Pair
	Phase phase `json:"phase"`
	// Leaf is the digest of the new certificate.
	Leaf   plan.Digest   `json:"leaf"`
	Halves []halfDigests `json:"halves"`
	Copy   generation    `json:"copy"`
}

// halfDigests are those of our part of a file, in both generations.
type halfDigests struct {
	Old plan.Digest `json:"old"`
	New plan.Digest `json:"new"`
}

// generation is one copy of a pair: the digest of its certificate, and those of its copied files.
type generation struct {
	Leaf  plan.Digest   `json:"leaf"`
	Files []plan.Digest `json:"files"`
}

func newWaiting(p Pair, was, next Content, old, parts [][]byte) *waiting {
	w := &waiting{Pair: p, Phase: phaseStaged, Leaf: plan.DigestOf(next.Certificate),
		Copy: generation{Leaf: plan.DigestOf(was.Certificate)}}
	for i := range old {
		w.Halves = append(w.Halves, halfDigests{Old: plan.DigestOf(old[i]), New: plan.DigestOf(parts[i])})
	}
	return w
}

func (r *Replacer) load() (j journal, err error) {
	b, err := r.state.ReadFile(journalFile)
	if errors.Is(err, fs.ErrNotExist) {
		return journal{Version: 1}, nil
	}
	if err != nil {
		return j, err
	}
	if err := json.Unmarshal(b, &j); err != nil {
		return j, fmt.Errorf("journal %s is not what we wrote", journalFile)
	}
	if j.Version != 1 {
		return j, fmt.Errorf("journal %s is of version %d, want 1", journalFile, j.Version)
	}
	if w := j.Waiting; w != nil {
		if halves, err := w.halves(); err != nil || len(halves) != len(w.Halves) || len(halves) != len(w.Copy.Files) {
			return j, fmt.Errorf("journal %s is not what we wrote", journalFile)
		}
	}
	return j, nil
}

// store makes a journal durable, and then ours.
func (r *Replacer) store(j journal) error {
	b, err := json.MarshalIndent(j, "", "  ")
	if err != nil {
		return err
	}
	if err := r.state.WriteFile(journalFile, append(b, '\n')); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	r.journal = j
	return nil
}

// note notes another phase of the pair that waits.
func (r *Replacer) note(p phase) error {
	w, j := *r.journal.Waiting, r.journal
	w.Phase, j.Waiting = p, &w
	return r.store(j)
}

// end notes that no pair waits, and removes what its files displaced.
func (r *Replacer) end() error {
	j, was := r.journal, r.journal.Waiting
	j.Waiting = nil
	if err := r.store(j); err != nil {
		return err
	}
	_ = r.sweep([]Pair{was.Pair}) // or Recover does
	return nil
}
