// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// ErrChanged means that somebody else changed a held file, which was left as it is.
var ErrChanged = errors.New("somebody else changed it meanwhile")

// Held are files that belong together, as they were read, and their directories, opened once. They can be
// replaced as long as nobody else changes them. Their old content stays open until Close: the renames need
// not wait while the file system frees it, and follow each other closely.
//
// It is for files that a commit must not touch, such as private keys. Held must not be used concurrently.
type Held struct {
	ses   *session
	files []heldFile
}

type heldFile struct {
	location
	path string
	old  *os.File
	data []byte
	next *os.File // what is staged, with its lock; nil if nothing is
	name string   // of next; once it is published, of what it displaced
	// swapped says that next is published, and the file that it displaced can be put back.
	swapped bool
}

// Hold opens files and reads them. Unlike the rest of this package it follows no link at all, not even in
// the path of a directory, and demands that nobody but root (in plain mode: or we) can change what leads to a
// file: each directory and the file are root's, and neither group nor others may write. A file may have further
// hard links; they keep the old content.
func (t *Tree) Hold(paths ...string) (h *Held, err error) {
	h = &Held{ses: t.newSession()}
	for _, p := range paths {
		f, err := h.ses.hold(p)
		if err != nil {
			h.Close()
			return nil, fmt.Errorf("hold %s: %w", p, unwrapPath(err))
		}
		h.files = append(h.files, f)
	}
	return h, nil
}

// Close gives up what is staged and not published.
func (h *Held) Close() {
	for i := range h.files {
		h.discard(i)
		_ = h.files[i].old.Close()
	}
	h.ses.close()
}

// Data is the content of the i-th file as it was read.
func (h *Held) Data(i int) []byte { return h.files[i].data }

func (ses *session) hold(p string) (f heldFile, err error) {
	f.path = p
	if !path.IsAbs(p) || path.Clean(p) != p {
		return f, irregular("not an absolute, clean path")
	}
	if _, err := ses.descend(path.Dir(p)); err != nil {
		return f, err
	}
	if f.location, err = ses.find(Target{Path: p}); err != nil {
		return f, err
	}
	if f.info == nil {
		return f, missing("missing")
	}
	if err := f.dir.openForSync(); err != nil {
		return f, err
	}
	if f.old, err = f.dir.root.OpenFile(f.base, os.O_RDONLY|syscall.O_NONBLOCK, 0); err != nil {
		return f, err
	}
	if f.info, f.data, err = readAll(f.old, f.info); err == nil {
		if why := others(f.info); why != "" {
			err = irregular(why)
		}
	}
	if err != nil {
		_ = f.old.Close()
	}
	return f, err
}

// readAll reads an open file, which must be the one that was found.
func readAll(f *os.File, found fs.FileInfo) (fs.FileInfo, []byte, error) {
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, nil, err
	case !os.SameFile(info, found) || !info.Mode().IsRegular():
		return nil, nil, ErrChanged
	case info.Size() > MaxSize:
		return nil, nil, irregular(fmt.Sprintf("a file of %d bytes, more than %d", info.Size(), MaxSize))
	}
	data, err := io.ReadAll(io.NewSectionReader(f, 0, info.Size()+1))
	if err == nil && int64(len(data)) != info.Size() {
		err = ErrChanged
	}
	return info, data, err
}

// descend opens a directory step by step from the top of the tree.
func (ses *session) descend(p string) (*directory, error) {
	if d, ok := ses.dirs[p]; ok {
		return d, nil
	}
	at := "/"
	root, err := ses.tree.openRoot(at)
	for name := range strings.SplitSeq(strings.Trim(p, "/"), "/") {
		if err != nil {
			break
		}
		if name == "" {
			continue
		}
		at = path.Join(at, name)
		above := root
		root, err = into(above, name)
		_ = above.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("directory %s: %w", at, unwrapPath(err))
	}
	info, err := root.Stat(".")
	return ses.keep(&directory{path: p, info: info, root: root}, err)
}

// into opens one directory in another.
func into(above *os.Root, name string) (*os.Root, error) {
	info, err := above.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, irregular("is " + describe(info))
	}
	if why := others(info); why != "" {
		return nil, irregular(why)
	}
	root, err := above.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	if now, err := root.Stat("."); err != nil || !os.SameFile(info, now) {
		_ = root.Close()
		return nil, ErrReplaced
	}
	return root, nil
}

// others says how others than root can change a file or directory; its text completes "it ...".
func others(info fs.FileInfo) string {
	switch {
	case !trusted(info):
		return fmt.Sprintf("belongs to uid %d", info.Sys().(*syscall.Stat_t).Uid)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Sprintf("has mode %04o, which lets others than its owner write", info.Mode().Perm())
	}
	return ""
}

// Sync brings the directories to stable storage: what was renamed there before them, by whomever.
func (h *Held) Sync() error {
	for _, f := range h.files {
		f.dir.dirty = true
	}
	return h.ses.sync()
}

// Adopt takes for what is staged for the i-th file a file that a killed process staged, if there is one with
// this digest: it is whole. That needs no space on a disk that is full.
func (h *Held) Adopt(i int, want plan.Digest) error {
	f := &h.files[i]
	if _, err := f.dir.handle.Seek(0, io.SeekStart); err != nil { // names reads on where it was
		return fmt.Errorf("adopt for %s: %w", f.path, unwrapPath(err))
	}
	for _, name := range f.dir.names() {
		if !leftover(name, func(base string) bool { return base == f.base }) {
			continue
		}
		next, err := f.openLeftover(name, want)
		if err != nil {
			continue
		}
		h.discard(i)
		f.next, f.name = next, name
		return nil
	}
	return fmt.Errorf("adopt for %s: %w", f.path, fs.ErrNotExist)
}

// openLeftover opens and locks a staged file that is whole.
func (f heldFile) openLeftover(name string, want plan.Digest) (*os.File, error) {
	found, err := f.dir.root.Lstat(name)
	if err != nil || !found.Mode().IsRegular() {
		return nil, errors.Join(errors.New("no regular file"), err)
	}
	next, err := f.dir.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, data, err := readAll(next, found)
	switch {
	case err != nil:
	case others(info) != "" || info.Mode().Perm() != f.info.Mode().Perm():
		err = errors.New("mode or owner are not those of the file")
	case plan.DigestOf(data) != want:
		err = errors.New("its bytes are others")
	default:
		if err = unix.Flock(int(next.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
			err = next.Sync()
		}
	}
	if err != nil {
		_ = next.Close()
		return nil, err
	}
	return next, nil
}
