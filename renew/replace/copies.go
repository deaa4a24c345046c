// SPDX-License-Identifier: Apache-2.0

package replace

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/node-cert-agent/node-cert-agent/agent/disk"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

const (
	copies = "copies"
	// generations of a pair are copied, so that the one before the last is not lost to a renewal of a pair
	// that never worked.
	generations = 2
)

// copyName is the name of the copy of a file. It begins with the pair's, for people, and is told apart by
// content: what is copied twice is one file, and a failure that repeats does not push out the last good one.
func copyName(id string, of plan.Digest) string {
	return path.Join(copies, strings.ReplaceAll(id, "/", "_")+"."+of.String()[:32])
}

// backUp copies the whole files that are held.
func (r *Replacer) backUp(w *waiting, h *disk.Held) error {
	for i := range w.Halves {
		of := plan.DigestOf(h.Data(i))
		if err := r.state.WriteFile(copyName(w.ID, of), h.Data(i)); err != nil {
			return fmt.Errorf("copy: %w", err)
		}
		w.Copy.Files = append(w.Copy.Files, of)
	}
	return nil
}

// copied returns the old parts of the pair that waits.
func (r *Replacer) copied(w *waiting, halves []half) (parts [][]byte, err error) {
	for i, f := range halves {
		part, err := r.state.ReadFile(copyName(w.ID, w.Copy.Files[i]))
		if err != nil {
			return nil, err
		}
		if plan.DigestOf(part) == w.Copy.Files[i] && f.editor != nil {
			if part, err = f.editor.Get(part); err != nil {
				return nil, fmt.Errorf("copy of %s: %w", f.path, err)
			}
		}
		if plan.DigestOf(part) != w.Halves[i].Old {
			return nil, fmt.Errorf("copy of %s: its bytes are not those that were copied", f.path)
		}
		parts = append(parts, part)
	}
	return parts, nil
}

// begin notes that a pair is about to be replaced, and where its copy is. It removes what became too old.
func (r *Replacer) begin(w *waiting) error {
	j := r.journal
	j.Waiting = w
	j.Copies = maps.Clone(j.Copies)
	if j.Copies == nil {
		j.Copies = map[string][]generation{}
	}
	older := slices.DeleteFunc(slices.Clone(j.Copies[w.ID]), func(g generation) bool {
		return slices.Equal(g.Files, w.Copy.Files)
	})
	j.Copies[w.ID] = append([]generation{w.Copy}, older[:min(len(older), generations-1)]...)
	if err := r.store(j); err != nil {
		return err
	}
	r.prune()
	return nil
}

// prune removes copies that no pair refers to. What cannot be removed is left to the next time.
func (r *Replacer) prune() {
	var used []string
	for id, all := range r.journal.Copies {
		for _, g := range all {
			for _, of := range g.Files {
				used = append(used, path.Base(copyName(id, of)))
			}
		}
	}
	names, _ := r.state.List(copies)
	for _, name := range names {
		if !strings.HasPrefix(name, ".") && !slices.Contains(used, name) {
			_ = r.state.Remove(path.Join(copies, name))
		}
	}
}
