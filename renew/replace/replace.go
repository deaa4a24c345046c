// SPDX-License-Identifier: Apache-2.0

// Package replace replaces a pair on disk, a certificate and its private key, and can undo it until the
// new pair is proven. A pair is two files, or one kubeconfig that holds both as data.
//
// It promises: that a reader sees key and certificate of two generations only between two renames that follow
// each other; that what both files hold is known, by digest, from a durable journal before the first of
// them, so that after a crash at any point Recover makes them one generation again; that the old bytes are
// copied to the state directory before, and stay there until two newer generations are; that one pair at a
// time is replaced and not yet proven; and that a file which somebody else changed meanwhile is left as it is.
//
// It does not judge the bytes, who may ask, or whether a pair works: Keep and Restore are for who knows that.
// It does not promise anything against root, or for the instant between the last look at a file and the rename
// over it: no system call replaces a file only if it still is a certain one.
//
// No error and no name holds a byte of a key. The journal and the copies lie in a directory of mode 0700.
//
// Sources: rename(2), fsync(2); kubeadm app/util/pkiutil, WriteCertAndKey (the key is written first, in place);
// crypto/tls X509KeyPair, by which servers refuse a pair of two generations; client-go tools/clientcmd.
package replace

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/node-cert-agent/node-cert-agent/agent/disk"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/secret"
)

var (
	// ErrChanged means that on disk is not what the caller believed, or somebody else changed it meanwhile.
	ErrChanged = errors.New("changed meanwhile")
	// ErrWritten means that a pair, this or another, is replaced and neither kept nor restored yet.
	ErrWritten = errors.New("a pair is not proven yet")
	// ErrNotWritten means that there is nothing to keep or to restore under that name.
	ErrNotWritten = errors.New("is not waiting for proof")
	// ErrUnsettled means that a failure left the pair neither old nor new: Recover has to be called.
	ErrUnsettled = errors.New("the pair is between two generations")
)

// Pair says where a pair lives. Paths are absolute and clean.
type Pair struct {
	// ID is lower-case words of letters and digits, joined by dots, dashes and slashes, such as etcd/server.
	ID string `json:"id"`
	// Key and Certificate are two files, or both empty.
	Key         string `json:"key,omitempty"`
	Certificate string `json:"certificate,omitempty"`
	// Kubeconfig is the file in their place: the client data of its current context's user.
	Kubeconfig string `json:"kubeconfig,omitempty"`
}

// Content is what a pair holds, as PEM.
type Content struct {
	Certificate []byte
	Key         secret.Bytes
}

// Digests are those of the two parts of a Content.
type Digests struct{ Certificate, Key plan.Digest }

// Digests of the content.
func (c Content) Digests() Digests {
	return Digests{Certificate: plan.DigestOf(c.Certificate), Key: plan.DigestOf(c.Key.Reveal())}
}

// Replacer replaces pairs. Its methods may be called concurrently; they run one at a time.
type Replacer struct {
	tree    *disk.Tree
	state   *disk.Directory
	release func()

	mu      sync.Mutex
	journal journal
}

// Open reads the journal and takes the state directory, which must exist and be closed to others, for this
// process until Close. Recover has to be called before anything is replaced.
func Open(tree *disk.Tree, state *disk.Directory) (*Replacer, error) {
	release, err := state.Lock()
	if err != nil {
		return nil, err
	}
	r := &Replacer{tree: tree, state: state, release: release}
	if r.journal, err = r.load(); err != nil {
		release()
		return nil, err
	}
	return r, nil
}

// Close lets another process take the state directory.
func (r *Replacer) Close() { r.release() }

// Read returns what a pair holds now. The error says what about its files is unfit for a replacement.
func (r *Replacer) Read(p Pair) (Content, error) {
	halves, err := p.halves()
	if err != nil {
		return Content{}, err
	}
	h, err := r.tree.Hold(paths(halves)...)
	if err != nil {
		return Content{}, fmt.Errorf("pair %s: %w", p.ID, err)
	}
	defer h.Close()
	parts, err := partsOf(h, halves)
	if err != nil {
		return Content{}, fmt.Errorf("pair %s: %w", p.ID, err)
	}
	return p.content(parts)
}

// Replace puts next in the place of a pair that holds what seen says. On success the pair waits for Keep or
// Restore. After an error the old pair stands, unless it matches ErrUnsettled. Errors match ErrChanged and
// ErrWritten, and those of agent/disk, where they apply.
func (r *Replacer) Replace(p Pair, seen Digests, next Content) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.journal.Waiting; w != nil {
		return fmt.Errorf("replace %s: %w: %s", p.ID, ErrWritten, w.ID)
	}
	if err := r.replace(p, seen, next); err != nil {
		return fmt.Errorf("replace %s: %w", p.ID, theirs(err))
	}
	return nil
}

func (r *Replacer) replace(p Pair, seen Digests, next Content) error {
	halves, err := p.halves()
	if err != nil {
		return err
	}
	h, err := r.tree.Hold(paths(halves)...)
	if err != nil {
		return err
	}
	defer h.Close()
	old, err := partsOf(h, halves)
	if err != nil {
		return err
	}
	was, err := p.content(old)
	if err != nil {
		return err
	}
	if was.Digests() != seen {
		return fmt.Errorf("%w: the certificate is %.12s, and was %.12s", ErrChanged, was.Digests().Certificate,
			seen.Certificate)
	}
	parts := p.parts(next)
	if slices.EqualFunc(old, parts, bytes.Equal) {
		return errors.New("it would stay the same")
	}
	w := newWaiting(p, was, next, old, parts)
	if err := r.backUp(w, h); err != nil {
		return err
	}
	if err := stage(h, halves, parts, func(i int) bool { return !bytes.Equal(old[i], parts[i]) }); err != nil {
		return err
	}
	if err := r.begin(w); err != nil {
		return err
	}
	done, err := h.Publish()
	h.Close()
	if err != nil {
		return r.undo(done, err)
	}
	_ = r.note(phaseWritten) // both halves are what the journal calls new, which says as much
	return nil
}

// undo puts the old pair back after a failure; done renames went well.
func (r *Replacer) undo(done int, cause error) error {
	if done > 0 {
		if err := r.turnBack(); err != nil {
			return fmt.Errorf("%w; %w: %w", cause, ErrUnsettled, err)
		}
	}
	if err := r.end(); err != nil {
		return fmt.Errorf("%w; the old pair stands, but: %w", cause, err)
	}
	return cause
}

// theirs says in our words that a file was changed.
func theirs(err error) error {
	if errors.Is(err, disk.ErrChanged) {
		return fmt.Errorf("%w: %w", ErrChanged, err)
	}
	return err
}
