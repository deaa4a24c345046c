// SPDX-License-Identifier: Apache-2.0

package replace

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/node-cert-agent/node-cert-agent/agent/disk"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// Status is the pair that waits for Keep or Restore, if there is one.
type Status struct {
	Pair Pair
	// Leaf is the digest of the new certificate; zero if no pair waits.
	Leaf plan.Digest
	// Blocked says why neither will succeed as it is: what was seen is of neither generation, or cannot be
	// seen. It is one line, or empty.
	Blocked string
}

// side says of which generation a half is.
type side string

const (
	sideOld   side = "old"
	sideNew   side = "new"
	sideBoth  side = "old and new" // a key that is reused
	sideOther side = "neither old nor new"
)

// Waiting tells which pair waits, by the journal; the disk is not looked at.
func (r *Replacer) Waiting() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status("")
}

func (r *Replacer) status(blocked string) Status {
	w := r.journal.Waiting
	if w == nil {
		return Status{}
	}
	return Status{Pair: w.Pair, Leaf: w.Leaf, Blocked: blocked}
}

// Recover finishes what a killed process, or a failure, left. If key and certificate are of two generations
// and both are known, the change that was under way is completed if what it needs is there, and else taken
// back. A pair that is all old waits no longer, one that is all new does. What else is found is left as it
// is, and told in Status.Blocked. Then staged files that nobody needs are removed beside these pairs.
//
// An error means that something could not be done that should be, and that Recover may be called again.
func (r *Replacer) Recover(pairs ...Pair) (Status, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	blocked, err := "", error(nil)
	if w := r.journal.Waiting; w != nil {
		pairs = append(slices.Clone(pairs), w.Pair)
		if err = r.unite(); err == nil {
			blocked, err = r.settle()
		}
	}
	if err == nil {
		err = r.sweep(pairs)
	}
	if err != nil {
		return r.status(err.Error()), fmt.Errorf("recover: %w", theirs(err))
	}
	return r.status(blocked), nil
}

// unite makes one generation of two.
func (r *Replacer) unite() error {
	h, _, seen, err := r.hold()
	if err != nil {
		return nil //nolint:nilerr // settle says it
	}
	defer h.Close()
	switch p := r.journal.Waiting.Phase; {
	case slices.Contains(seen, sideOther), !slices.Contains(seen, sideOld), !slices.Contains(seen, sideNew):
		return nil
	case p == phaseWritten:
		return nil // it was whole once, so that somebody else changed it
	case p == phaseStaged && r.adopt(h, seen) == nil:
		return published(h)
	}
	h.Close()
	return r.turnBack()
}

// adopt takes the staged files of the halves that are still old. That they are whole was seen to before the
// journal began; and nothing has to be written, so that it works on a full disk.
func (r *Replacer) adopt(h *disk.Held, seen []side) error {
	for i, s := range seen {
		if s != sideOld {
			continue
		}
		if err := h.Adopt(i, r.journal.Waiting.Halves[i].New); err != nil {
			return err
		}
	}
	return nil
}

// settle notes what a pair of one generation means, after what a killed process renamed is made durable.
func (r *Replacer) settle() (blocked string, err error) {
	h, _, seen, err := r.hold()
	if err != nil {
		return err.Error(), nil
	}
	defer h.Close()
	isOld, isNew := slices.Contains(seen, sideOld), slices.Contains(seen, sideNew)
	if slices.Contains(seen, sideOther) || isOld && isNew {
		return r.describe(seen), nil
	}
	if err := h.Sync(); err != nil {
		return "", err
	}
	if isOld {
		return "", r.end()
	}
	return "", r.note(phaseWritten)
}

// hold holds the files of the waiting pair, and tells of which generation they are.
func (r *Replacer) hold() (h *disk.Held, halves []half, seen []side, err error) {
	w := r.journal.Waiting
	if halves, err = w.halves(); err != nil {
		return nil, nil, nil, err
	}
	if h, err = r.tree.Hold(paths(halves)...); err != nil {
		return nil, nil, nil, err
	}
	parts, err := partsOf(h, halves)
	if err != nil {
		h.Close()
		return nil, nil, nil, err
	}
	for i, part := range parts {
		is := sideOther
		switch plan.DigestOf(part) {
		case w.Halves[i].New:
			is = sideNew
		case w.Halves[i].Old:
			is = sideOld
		}
		// With a key that is reused, old and new are the same, and it goes with the certificate.
		if w.Halves[i].New == w.Halves[i].Old && is == sideNew {
			is = sideBoth
		}
		seen = append(seen, is)
	}
	return h, halves, seen, nil
}

// describe says what was seen of each file.
func (r *Replacer) describe(seen []side) string {
	halves, _ := r.journal.Waiting.halves()
	var all []string
	for i, s := range seen {
		all = append(all, halves[i].path+" is "+string(s))
	}
	return strings.Join(all, ", ")
}

// sweep removes what was staged and is not needed.
func (r *Replacer) sweep(pairs []Pair) error {
	var specs []plan.FileSpec
	for _, p := range pairs {
		halves, err := p.halves()
		if err != nil {
			return err
		}
		for _, h := range halves {
			specs = append(specs, plan.FileSpec{Path: h.path, UID: os.Geteuid()})
		}
	}
	if _, err := r.tree.Sweep(specs); err != nil {
		return err
	}
	return r.state.Sweep(".", copies)
}
