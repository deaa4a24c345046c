// SPDX-License-Identifier: Apache-2.0

package approver

import (
	"iter"
	"maps"
	"sync"

	"github.com/node-cert-agent/node-cert-agent/cluster/approver/verdict"
)

// written are the notes that this replica wrote and that the informer may not have yet: a token that is
// spent on one node must not be good for another in the moment between. It is safe for concurrent use.
type written struct {
	mu sync.Mutex
	of map[string]notes
}

func (w *written) put(node string, n notes) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.of[node] = n
}

// arrived tells that the informer has notes, or with none that the state is gone.
func (w *written) arrived(node string, n *notes) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ours, ok := w.of[node]; ok && (n == nil || same(ours, *n)) {
		delete(w.of, node)
	}
}

func same(a, b notes) bool {
	if a.Bootstrap == nil || b.Bootstrap == nil {
		return a.Bootstrap == b.Bootstrap && a.KnownSince == b.KnownSince
	}
	return *a.Bootstrap == *b.Bootstrap && a.KnownSince == b.KnownSince
}

// notes are those of the states and those that are newer.
func (w *written) notes(states []any) iter.Seq[verdict.Note] {
	w.mu.Lock()
	ours := maps.Clone(w.of)
	w.mu.Unlock()
	return func(yield func(verdict.Note) bool) {
		for node, s := range ours {
			if s.Bootstrap != nil && !yield(s.Bootstrap.note(node)) {
				return
			}
		}
		for _, o := range states {
			s, ok := o.(*nodeState)
			if !ok || s.Spec.Bootstrap == nil {
				continue
			}
			if _, newer := ours[s.Name]; !newer && !yield(s.Spec.Bootstrap.note(s.Name)) {
				return
			}
		}
	}
}

func (b bootstrap) note(node string) verdict.Note {
	return verdict.Note{Node: node, Secret: b.Secret, Approved: when(b.Approved)}
}
