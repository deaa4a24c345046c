// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Publish puts what is staged in the place of the held files, in the order of Hold, and brings the directories
// to stable storage. It returns how many files were replaced; the error matches ErrChanged if a file is no
// longer what was held, and ErrReplaced if a directory is not. After an error it puts the old files back itself
// where the file system can exchange two names, so that done is 0, and what somebody else wrote stays.
//
// A file that was displaced stays beside its place, under the name of what was staged, until Sweep. Who watches it with
// inotify(7) by its own inode, as kube-apiserver does through fsnotify, is told that it was moved, and has to take its
// watch away before the inode is gone: else fsnotify fails, and kube-apiserver looks again after a minute only.
//
// Every file is compared with what was read before the first is replaced, staged for or not. No system call
// replaces a file only if it still is a certain one. So the names are exchanged, and what was displaced is
// looked at again: what somebody else made of it meanwhile goes back. Where a file system cannot do that
// (rename(2): RENAME_EXCHANGE), the staged file is renamed over the other, and a change in the instant before
// is lost.
func (h *Held) Publish() (done int, err error) {
	for _, f := range h.files {
		if !f.same() {
			return 0, fmt.Errorf("publish %s: %w", f.path, ErrChanged)
		}
		if err := h.ses.confirm(f.dir); err != nil {
			return 0, fmt.Errorf("publish %s: %w", f.path, err)
		}
	}
	for i := range h.files {
		f := &h.files[i]
		if f.next == nil {
			continue
		}
		if err = f.replace(); err != nil {
			err = fmt.Errorf("publish %s: %w", f.path, unwrapPath(err))
			break
		}
		done++
	}
	if err == nil {
		err = h.inspect()
	}
	if err != nil {
		done -= h.takeBack()
	}
	h.leave()
	if unsafe := h.ses.sync(); err == nil {
		err = unsafe
	}
	return done, err
}

// same says whether a held file still is what stands at its path, with the same bytes: a file that is
// overwritten in place twice within one tick of the clock has the same change time.
func (f heldFile) same() bool {
	now, err := f.dir.root.Lstat(f.base)
	return err == nil && unchanged(f.info, now) && f.intact()
}

// intact says whether the file that was read still has the bytes that were read.
func (f heldFile) intact() bool {
	_, data, err := readAll(f.old, f.info)
	return err == nil && bytes.Equal(data, f.data)
}

// replace makes the staged file the one at the path. It is short: whoever reads two files waits for it.
func (f *heldFile) replace() error {
	err := f.exchange()
	if err == nil {
		f.swapped = true
	}
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	if now, err := f.dir.root.Lstat(f.base); err != nil || !unchanged(f.info, now) {
		return ErrChanged
	}
	if err := f.dir.root.Rename(f.name, f.base); err != nil {
		return err
	}
	f.dir.dirty = true
	_ = f.next.Close()
	f.next = nil
	return nil
}

func (f *heldFile) exchange() error {
	fd := int(f.dir.handle.Fd())
	err := unix.Renameat2(fd, f.name, fd, f.base, unix.RENAME_EXCHANGE)
	if err == nil {
		f.dir.dirty = true
	}
	if errors.Is(err, unix.ENOENT) {
		return ErrChanged
	}
	if err != nil {
		return fmt.Errorf("exchange: %w", err)
	}
	return nil
}

// inspect says whether what was displaced is what was held.
func (h *Held) inspect() error {
	for _, f := range h.files {
		if !f.swapped {
			continue
		}
		if now, err := f.dir.root.Lstat(f.name); err != nil || !os.SameFile(now, f.info) || !f.intact() {
			return fmt.Errorf("publish %s: %w", f.path, ErrChanged)
		}
	}
	return nil
}

// takeBack puts back what was displaced, and says of how many files.
func (h *Held) takeBack() (n int) {
	for i := range h.files {
		if f := &h.files[i]; f.swapped && f.exchange() == nil {
			f.swapped = false
			n++
		} else if f.swapped {
			// It may be somebody else's: it stays beside its place.
			f.swapped = false
			_ = f.next.Close()
			f.next = nil
		}
	}
	return n
}

// leave gives up the lock on what was displaced for good, so that it can be swept.
func (h *Held) leave() {
	for i := range h.files {
		if f := &h.files[i]; f.swapped {
			f.swapped = false
			_ = f.next.Close()
			f.next = nil
		}
	}
}
