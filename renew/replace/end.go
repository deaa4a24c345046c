// SPDX-License-Identifier: Apache-2.0

package replace

import (
	"fmt"
	"slices"

	"github.com/node-cert-agent/node-cert-agent/agent/disk"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// Keep ends the wait of a pair that works. leaf is the digest of its certificate, and the pair must still
// hold what was written.
func (r *Replacer) Keep(id string, leaf plan.Digest) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.keep(id, leaf); err != nil {
		return fmt.Errorf("keep %s: %w", id, theirs(err))
	}
	return nil
}

func (r *Replacer) keep(id string, leaf plan.Digest) error {
	if err := r.waits(id, leaf); err != nil {
		return err
	}
	h, _, seen, err := r.hold()
	if err != nil {
		return err
	}
	defer h.Close()
	if slices.ContainsFunc(seen, func(s side) bool { return s != sideNew && s != sideBoth }) {
		return fmt.Errorf("%w: %s", ErrChanged, r.describe(seen))
	}
	return r.end()
}

// Restore puts the old pair back, with the bytes that were copied, and ends the wait. leaf is the digest of the
// certificate to be taken away. A Restore that failed can be repeated.
func (r *Replacer) Restore(id string, leaf plan.Digest) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.restore(id, leaf); err != nil {
		return fmt.Errorf("restore %s: %w", id, theirs(err))
	}
	return nil
}

func (r *Replacer) restore(id string, leaf plan.Digest) error {
	if err := r.waits(id, leaf); err != nil {
		return err
	}
	if err := r.turnBack(); err != nil {
		return err
	}
	return r.end()
}

// Old is what the pair that waits held before, by its copy.
func (r *Replacer) Old() (Content, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.journal.Waiting
	if w == nil {
		return Content{}, ErrNotWritten
	}
	halves, err := w.halves()
	if err != nil {
		return Content{}, err
	}
	parts, err := r.copied(w, halves)
	if err != nil {
		return Content{}, err
	}
	return w.content(parts)
}

// Abandon ends the wait of a pair whose files somebody else took over, and touches none of them.
func (r *Replacer) Abandon(id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.journal.Waiting; w == nil || w.ID != id {
		return fmt.Errorf("abandon %s: %w", id, ErrNotWritten)
	}
	if err := r.end(); err != nil {
		return fmt.Errorf("abandon %s: %w", id, err)
	}
	return nil
}

func (r *Replacer) waits(id string, leaf plan.Digest) error {
	switch w := r.journal.Waiting; {
	case w == nil || w.ID != id:
		return ErrNotWritten
	case w.Leaf != leaf:
		return fmt.Errorf("%w: what waits is %.12s, not %.12s", ErrChanged, w.Leaf, leaf)
	}
	return nil
}

// turnBack makes both halves of the waiting pair old.
func (r *Replacer) turnBack() error {
	h, halves, seen, err := r.hold()
	if err != nil {
		return err
	}
	defer h.Close()
	if slices.Contains(seen, sideOther) {
		return fmt.Errorf("%w: %s", ErrChanged, r.describe(seen))
	}
	old, err := r.copied(r.journal.Waiting, halves)
	if err != nil {
		return err
	}
	if err := stage(h, halves, old, func(i int) bool { return seen[i] == sideNew }); err != nil {
		return err
	}
	if err := r.note(phaseRestoring); err != nil {
		return err
	}
	return published(h)
}

// published is Publish, where an error after a rename says that the pair is torn.
func published(h *disk.Held) error {
	done, err := h.Publish()
	if err != nil && done > 0 {
		return fmt.Errorf("%w: %w", ErrUnsettled, err)
	}
	return err
}
